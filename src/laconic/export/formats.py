"""The formats: how a module becomes a file, and how the file is asked again.

TorchScript and ONNX are made from one trace. For ONNX torch's older exporter is used: it needs `onnx` alone, takes half
a second where the newer one takes ten, and knows loops. Both are slated to go in some later torch; every file is
compared with the run's own model before it is kept, so a change would be noticed.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from laconic.errors import ConfigError, how_to_install
from laconic.export.raw import Batch, Raw

Ask = Callable[[Batch], Tensor]
"""The outputs of an exported file."""


def to_torchscript(raw: Raw, about: dict[str, str]) -> tuple[bytes, Ask]:
    """Loaded by `torch.jit.load`, also from C++. What it is stands in the extra file 'laconic.json'."""
    extra, buffer = {"laconic.json": json.dumps(about)}, io.BytesIO()
    with _quiet():
        torch.jit.save(_traced(raw), buffer, _extra_files=extra)
        content = _without_sources(buffer.getvalue())
        again = torch.jit.load(io.BytesIO(content))  # type: ignore[no-untyped-call]
    return content, lambda batch: again(*batch)


def _without_sources(archive: bytes) -> bytes:
    """The same archive without the notes on which source file a line comes from: they hold this machine's paths."""
    kept = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(kept, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            if not name.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(name), old.read(name))
    return kept.getvalue()


def to_onnx(raw: Raw, about: dict[str, str]) -> tuple[bytes, Ask]:
    """Needs `onnx`. What it is stands in the metadata of the model."""
    try:
        import onnx
    except ImportError:
        raise ConfigError(f"⟨to⟩ onnx needs onnx: {how_to_install('onnx')}") from None
    names, buffer = list(raw.inputs), io.BytesIO()
    with _quiet():
        torch.onnx.export(
            _traced(raw),
            raw.draw(2),
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            input_names=names,
            output_names=["outputs"],
            dynamic_axes={name: {0: "batch"} for name in (*names, "outputs")},
        )
        model = onnx.load_from_string(buffer.getvalue())
        for name, value in about.items():
            model.metadata_props.add(key=f"laconic.{name}", value=value)
        onnx.checker.check_model(model)
    return model.SerializeToString(), _asked_onnx(model.SerializeToString(), names)


def _asked_onnx(content: bytes, names: list[str]) -> Ask:
    """By onnxruntime where it is installed, else by onnx's own slow evaluator."""
    session: Any
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(content)
    else:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    # A trace leaves out inputs that nothing depends on, such as a table without codes.
    from onnx import load_from_string

    taken = {one.name for one in load_from_string(content).graph.input}

    def ask(batch: Batch) -> Tensor:
        given = {name: value.numpy() for name, value in zip(names, batch, strict=True) if name in taken}
        return torch.from_numpy(session.run(None, given)[0])

    return ask


def to_safetensors(raw: Raw, about: dict[str, str]) -> tuple[bytes, Ask]:
    """All numbers of the model, front end and preprocessing by name; the code that uses them is not in it."""
    from safetensors.torch import load, save

    state = {name: value.detach().clone().contiguous() for name, value in raw.module.state_dict().items()}
    content: bytes = save(state, metadata=about)

    def ask(batch: Batch) -> Tensor:
        outputs: Tensor = torch.func.functional_call(raw.module, load(content), batch)
        return outputs

    return content, ask


def _traced(raw: Raw) -> Any:
    with torch.no_grad():
        return torch.jit.trace(raw.module, raw.draw(2), check_trace=False)  # type: ignore[no-untyped-call]


class _quiet(warnings.catch_warnings):
    """Without torch's remarks on traces and on what will go some day: the result is compared instead."""

    def __enter__(self) -> Any:
        found = super().__enter__()
        warnings.simplefilter("ignore")
        return found


FORMATS: dict[str, tuple[str, Callable[[Raw, dict[str, str]], tuple[bytes, Ask]]]] = {
    "onnx": (".onnx", to_onnx),
    "torchscript": (".pt", to_torchscript),
    "safetensors": (".safetensors", to_safetensors),
}
"""By name: the ending of the file, and how it is made."""
