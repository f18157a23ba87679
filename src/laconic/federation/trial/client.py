"""The `ClientApp` of a trial on one machine (`laconic federate`): node k has the k-th part of the data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.app import Context

from laconic.errors import ConfigError
from laconic.federation.flower.client_app import client_app

if TYPE_CHECKING:
    from laconic.data.population import Records


def _records(context: Context) -> Records:
    from laconic.federation.flower.app_config import config_of
    from laconic.federation.trial.data import part_of

    number = context.node_config.get("partition-id")
    if not isinstance(number, int):
        raise ConfigError("this node of a trial has no partition-id: start it with --node-config 'partition-id=0 …'")
    return part_of(config_of(context.run_config), number)


app = client_app(_records)
