"""The `ServerApp` of a trial on one machine (`laconic federate`)."""

from __future__ import annotations

from laconic.runtime.flower.app_config import config_of
from laconic.runtime.flower.server_app import server_app
from laconic.runtime.flower.trial_data import TrialData, load_trial

app = server_app(lambda context: TrialData(load_trial(config_of(context.run_config))))
