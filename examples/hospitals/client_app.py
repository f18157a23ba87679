"""A hospital: it reads its own table, as the public schema says, and answers what its policy allows.

flower-supernode … --node-config 'data="admissions.csv" folder="node" policy="policy.toml"'
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.app import Context

from laconic.federation.flower.client_app import client_app

SCHEMA = Path(__file__).with_name("schema.toml")


def records(context: Context) -> tuple[Any, Any]:
    """This hospital's admissions. They are used here, and never sent."""
    from laconic.data.ehr.features import Preprocessing
    from laconic.data.ehr.schema import Schema
    from laconic.data.ehr.sources import load_table

    schema = Schema.from_toml(SCHEMA)
    table = load_table(schema, str(context.node_config["data"]))
    return Preprocessing(schema).transform(table), table.labels


app = client_app(records)
