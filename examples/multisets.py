"""Multisets: bags of digits, from how often each digit is in them to the bag, duplicates and all.

A network puts out five elements, each with a logit that says whether it exists. Only a loss that
gives each target an output of its own sees that three fives need three outputs: the likelihood of
the set. A tenth of all bags, by a rule that nobody tells the network, is never trained on.

    python examples/multisets.py --quick  # a second; part of the test suite
    python examples/multisets.py          # a quarter of a CPU minute. This is what it printed:

        held-out bags that come out exactly: 0.998
"""

import argparse

import torch
from torch import Tensor, nn

import setwise as sw

DIGITS, MOST, WIDTH = 10, 5, 256
DIGIT = sw.Features(sw.Categorical(DIGITS))
RULE = torch.tensor([2, 3, 5, 7, 11, 13, 17, 19, 23, 29])


def bags(number: int, held_out: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Digits [B, 5, 10], one-hot, and which of them are there: of one part of all bags."""
    digits = torch.randint(DIGITS, (20 * number, MOST), generator=generator)
    valid = torch.arange(MOST) < torch.randint(MOST + 1, (20 * number, 1), generator=generator)
    part = ((RULE[digits] * valid).sum(-1) % 10 == 0) == held_out
    return DIGIT.from_classes(digits[part].unsqueeze(-1))[:number], valid[part][:number]


def main(arguments: list[str] | None = None) -> float:
    """Train, and print the share of held-out bags that come out exactly, which is returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    steps = 60 if parser.parse_args(arguments).quick else 1000
    torch.manual_seed(0)
    layers = [nn.Linear(DIGITS, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()]
    layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, MOST * 11), nn.Unflatten(-1, (MOST, 11)))
    optimizer = torch.optim.Adam(model.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps + 1):
        digits, valid = bags(128 if step < steps else 2000, step == steps, generator)
        output = model((digits * valid.unsqueeze(-1)).sum(1))
        call = {"presence": output[..., -1], "target_valid": valid}
        if step < steps:
            optimizer.zero_grad()
            sw.set_likelihood(output[..., :-1], digits, DIGIT, **call).backward()
            optimizer.step()
            rate.step()
    exact = float(sw.metrics.multiset_equality(output[..., :-1], digits, DIGIT, **call))
    print(f"held-out bags that come out exactly: {exact:.3f}")
    return exact


if __name__ == "__main__":
    main()
