"""The server: it has no patients. What it knows of the records is how many features the public schema gives them."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import Context

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.sources import load_table
from laconic.data.meaning import Meaning
from laconic.federation.flower.server_app import ServerData, server_app

SCHEMA = Path(__file__).with_name("schema.toml")


def data(context: Context) -> ServerData:
    """Two made-up records show the shape; a test file, if the server has one, shows the progress."""
    preprocessing = Preprocessing(Schema.from_toml(SCHEMA))
    example = (torch.zeros(2, preprocessing.num_features), torch.tensor([0, 1]))
    file, test = str(context.run_config["app.test"]), None
    if file:
        table = load_table(preprocessing.schema, file)
        test = (preprocessing.transform(table), table.labels)
    meaning = Meaning.of_schema(preprocessing.schema)  # every hospital's schema must say the same
    return ServerData(example=example, num_classes=2, test=test, meaning=meaning)


app = server_app(data)
