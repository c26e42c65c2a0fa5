"""Export: a network that puts out sets, as ONNX, and the same answers from ONNX Runtime.

The batch is dynamic: the file is made with four examples and answers for any number. What comes
out are logits, as from PyTorch; a softmax or a threshold is up to whoever uses the file. It needs
``pip install onnx onnxscript onnxruntime``.

    python examples/export.py --quick  # the same; part of the test suite
    python examples/export.py          # some seconds. This is what it printed:

        batches of 1, 7 and 32 agree with PyTorch: True
"""

import argparse
import tempfile
from pathlib import Path

import onnxruntime
import torch
from torch.export import Dim

import setwise as sw
from setwise.models import PictureEncoder, QueryDecoder, SetPredictor

FEATURES = sw.Features(sw.Categorical(3), sw.Gaussian(2))


def main(arguments: list[str] | None = None) -> dict[int, float]:
    """Export, compare, and print whether every batch agrees; how far is returned by its size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="there is nothing to shorten")
    parser.parse_args(arguments)
    torch.manual_seed(0)
    model = SetPredictor(PictureEncoder(16, widths=(8, 16)), QueryDecoder(16, 5, heads=2), FEATURES)
    model.eval()  # dropout and batch normalisation as they are used, not trained
    pictures = torch.rand(4, 3, 16, 16)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "network.onnx")
        named = {"input_names": ["pictures"], "output_names": ["elements", "presence"]}
        how = {"dynamo": True, "dynamic_shapes": ({0: Dim("batch")},), "verbose": False}
        torch.onnx.export(model, (pictures,), file, **named, **how)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        agree, differences = True, {}
        for size in (1, 7, 32):
            pictures = torch.rand(size, 3, 16, 16)
            with torch.no_grad():
                expected = model(pictures)
            found = session.run(["elements", "presence"], {"pictures": pictures.numpy()})
            pairs = [(x, torch.from_numpy(y)) for x, y in zip(expected, found, strict=True)]
            agree &= all(torch.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in pairs)
            differences[size] = max(float((x - y).abs().max()) for x, y in pairs)
    print(f"batches of 1, 7 and 32 agree with PyTorch: {agree}")
    return differences


if __name__ == "__main__":
    main()
