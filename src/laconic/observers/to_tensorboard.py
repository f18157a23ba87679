"""TensorBoard: event files in the run folder, written here, since the library names its files after the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from laconic.observers.observer import Started
from laconic.observers.tracker import Tracker


class TensorBoard(Tracker):
    """Event files in `FOLDER/tensorboard`, or in `tensorboard/SCHEME-FINGERPRINT` for a run in memory."""

    name = "tensorboard"

    def open(self, run: Started, parameters: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        base = Path("tensorboard") / f"{run.scheme}-{run.fingerprint[:8]}" if run.folder is None else run.folder
        self._folder = base if run.folder is None else base / "tensorboard"
        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.glob("events.out.tfevents.*")))
        self._stream = open(self._folder / f"events.out.tfevents.{number:06d}.laconic", "xb")  # noqa: SIM115
        self._records = RecordWriter(self._stream)
        self._add(Event(file_version="brain.Event:2"))
        # Rounds after the last checkpoint come again: what was logged of them is to be forgotten.
        self._add(Event(step=run.finished + 1, session_log=SessionLog(status=SessionLog.START)))
        lines = [f"{name} = {value}" for name, value in sorted(parameters.items())]
        self._text("settings", "\n\n".join(lines))
        self._text("fingerprint", run.fingerprint)
        return {"folder": "tensorboard"}

    def log(self, step: int, values: dict[str, float]) -> None:
        found = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(Event(step=step, summary=Summary(value=found)))
        self._stream.flush()

    def keep(self, file: Path) -> None:
        self._text(file.name, file.read_text(encoding="utf-8"))

    def close(self, status: str) -> None:
        self._text("status", status)
        self._stream.close()

    def _add(self, event: Event) -> None:
        event.wall_time = self.clock(event.step)
        self._records.write(event.SerializeToString())

    def _text(self, tag: str, text: str) -> None:
        """Add a text in the form that TensorBoard's text plug-in reads."""
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=TensorShapeProto())
        about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._add(Event(summary=Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=tensor)])))


TRACKER = TensorBoard
