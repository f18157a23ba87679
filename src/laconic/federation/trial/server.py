"""The `ServerApp` of a trial on one machine (`laconic federate`)."""

from __future__ import annotations

from laconic.federation.flower.server_app import config_of, server_app
from laconic.federation.trial.data import TrialData, load_trial

app = server_app(lambda context: TrialData(load_trial(config_of(context.run_config))))
