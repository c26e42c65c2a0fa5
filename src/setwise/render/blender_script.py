"""Runs inside Blender: reads scenes as lines of JSON, draws each with Cycles, answers each line.

Started by `setwise.render.blender` as ``blender --background --python blender_script.py``. It
must not import anything of this library or NumPy: Blender brings a Python of its own.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

PREFIX = "setwise:"  # of the lines meant for the other side, among what Blender itself says


def main() -> None:
    """Draw scenes until there are no more; one that fails does not end the program."""
    for line in sys.stdin:
        answer = {}
        try:
            if line.strip():
                job = json.loads(line)
                build(job)
                draw(job)
        except Exception as error:  # goes to the caller, who raises it
            answer["error"] = f"{type(error).__name__}: {error}"
        print(PREFIX, json.dumps(answer), flush=True)


def build(job: dict[str, Any]) -> None:
    """Replace all there is by the scene of a job."""
    import bpy  # type: ignore[import-not-found,unused-ignore]

    bpy.ops.wm.read_factory_settings(use_empty=True)
    scene = bpy.context.scene
    camera = bpy.data.cameras.new("camera")
    camera.sensor_fit = "HORIZONTAL"
    camera.angle = math.radians(job["field_of_view"])
    scene.camera = _put("camera", camera, job["camera"], job["aim"])
    for number, lamp in enumerate(job["lamps"]):
        light = bpy.data.lights.new(f"lamp{number}", "AREA")
        light.shape, light.size = "SQUARE", lamp["side"]
        _shine(light, lamp["radiance"], 4 * lamp["side"] ** 2)
        _put(light.name, light, lamp["position"], job["aim"])
    sun = bpy.data.lights.new("sun", "SUN")
    sun.angle = 0.0
    _shine(sun, [job["sun"]["irradiance"]] * 3, 1.0)
    _put("sun", sun, [0.0, 0.0, 0.0], job["sun"]["direction"])
    for body in job["bodies"]:
        _body(body)


def draw(job: dict[str, Any]) -> None:
    """Draw the scene into the file that the job names."""
    import bpy  # type: ignore[import-not-found,unused-ignore]

    scene = bpy.context.scene
    render, cycles = scene.render, scene.cycles
    render.engine = "CYCLES"
    cycles.device = "CPU"
    cycles.samples, cycles.seed = job["samples"], job["noise"]
    cycles.use_adaptive_sampling = cycles.use_denoising = False
    cycles.pixel_filter_type = "BOX"
    cycles.max_bounces = cycles.diffuse_bounces = cycles.glossy_bounces = job["bounces"]
    cycles.caustics_reflective = False
    cycles.sample_clamp_indirect = 4.0
    render.resolution_x, render.resolution_y = job["width"], job["height"]
    render.resolution_percentage = 100
    render.dither_intensity = 0.0
    render.image_settings.file_format = "PNG"
    render.image_settings.color_mode, render.image_settings.color_depth = "RGB", "8"
    scene.view_settings.view_transform = "Standard"
    render.filepath = job["output"]
    bpy.ops.render.render(write_still=True)


def _put(name: str, data: Any, position: list[float], aim: list[float]) -> Any:
    """A new object at a position, whose -z axis points to the aim and y axis upwards."""
    import bpy  # type: ignore[import-not-found,unused-ignore]
    from mathutils import Vector  # type: ignore[import-not-found,unused-ignore]

    placed = bpy.data.objects.new(name, data)
    placed.location = position
    placed.rotation_mode = "QUATERNION"
    placed.rotation_quaternion = (Vector(aim) - Vector(position)).to_track_quat("-Z", "Y")
    bpy.context.scene.collection.objects.link(placed)
    return placed


def _shine(light: Any, rgb: list[float], unit: float) -> None:
    """Set the energy of a light so that each unit of RGB becomes ``unit`` of Blender's watts."""
    most = max(rgb)
    light.color = [part / most for part in rgb]
    light.energy = unit * most


def _body(body: dict[str, Any]) -> None:
    import bpy  # type: ignore[import-not-found,unused-ignore]

    mesh = bpy.data.meshes.new(body["name"])
    mesh.from_pydata(body["vertices"], [], body["faces"])
    mesh.polygons.foreach_set("use_smooth", [True] * len(mesh.polygons))
    if hasattr(mesh, "use_auto_smooth"):  # up to Blender 4.0
        mesh.use_auto_smooth = True
    mesh.normals_split_custom_set_from_vertices(body["normals"])
    mesh.materials.append(_material(body["name"], body["layers"]))
    placed = bpy.data.objects.new(body["name"], mesh)
    bpy.context.scene.collection.objects.link(placed)


def _material(name: str, layers: list[dict[str, Any]]) -> Any:
    """A surface of one or two layers; the last one's share says how much of it there is."""
    import bpy  # type: ignore[import-not-found,unused-ignore]

    material = bpy.data.materials.new(name)
    material.use_nodes = True
    nodes, links = material.node_tree.nodes, material.node_tree.links
    nodes.clear()
    shaders = []
    for layer in layers:
        dull = layer["roughness"] is None
        shader = nodes.new("ShaderNodeBsdfDiffuse" if dull else "ShaderNodeBsdfGlossy")
        shader.inputs["Color"].default_value = [*layer["colour"], 1.0]
        if not dull:
            shader.distribution = "GGX"
            shader.inputs["Roughness"].default_value = layer["roughness"]
        shaders.append(shader.outputs[0])
    surface = shaders[0]
    if len(shaders) == 2:
        mix = nodes.new("ShaderNodeMixShader")
        mix.inputs[0].default_value = layers[1]["share"]
        links.new(shaders[0], mix.inputs[1])
        links.new(shaders[1], mix.inputs[2])
        surface = mix.outputs[0]
    links.new(surface, nodes.new("ShaderNodeOutputMaterial").inputs["Surface"])
    return material


if __name__ == "__main__":
    main()
