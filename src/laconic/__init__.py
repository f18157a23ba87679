"""Federated learning that is differentially private and frugal with bandwidth.

    import laconic
    scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=2.0, local_lr=0.5, local_steps=5)
    result = laconic.run(scheme, model=MyModule(), clients=[(x0, y0), (x1, y1), ...], test=(x, y),
                         sampling_rate=0.2, rounds=60, delta=1e-5)
    print(result.last, result.statement["summary"], result.ledger["bytes_up"])

The names below are imported when they are first used, so that importing the package costs nothing. They are stable, as
are the run folder and the privacy statement; docs/reference/index.md says what is provisional or experimental.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from laconic import schemes as schemes
    from laconic.advice.answer import advise as advise
    from laconic.api import audit_run as audit_run
    from laconic.api import run as run
    from laconic.audit.result import AuditResult as AuditResult
    from laconic.codecs.queries import Evaluations as Evaluations
    from laconic.data.population import FunctionPopulation as FunctionPopulation
    from laconic.data.population import Population as Population
    from laconic.data.population import Records as Records
    from laconic.data.synthetic import dead_leaves as dead_leaves
    from laconic.errors import LaconicError as LaconicError
    from laconic.experiment.calibrated import Calibration as Calibration
    from laconic.experiment.calibrated import calibrated as calibrated
    from laconic.experiment.experiment import Experiment as Experiment
    from laconic.export.export import export_run as export_run
    from laconic.export.loaded import load as load
    from laconic.features.kinds import public_front_end as public_front_end
    from laconic.features.scattering import ScatteringFrontEnd as ScatteringFrontEnd
    from laconic.features.tables import fourier_front_end as fourier_front_end
    from laconic.models.lora import lora as lora
    from laconic.models.lora import merged as merged
    from laconic.observers.observer import Observer as Observer
    from laconic.privacy.accounting.accountant import Accountant as Accountant
    from laconic.privacy.accounting.budget import Budget as Budget
    from laconic.privacy.accounting.budget import calibrate_noise as calibrate_noise
    from laconic.privacy.accounting.sampling import AsPublished as AsPublished
    from laconic.privacy.accounting.sampling import Cyclic as Cyclic
    from laconic.privacy.accounting.sampling import FixedSize as FixedSize
    from laconic.privacy.accounting.sampling import Poisson as Poisson
    from laconic.privacy.mechanism.correlated import CorrelatedGaussian as CorrelatedGaussian
    from laconic.privacy.mechanism.correlated import choose_bands as choose_bands
    from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
    from laconic.privacy.mechanism.gaussian import Gaussian as Gaussian
    from laconic.privacy.mechanism.gaussian import NoNoise as NoNoise
    from laconic.runner.outcome import RunResult as RunResult
    from laconic.runner.run import Run as Run
    from laconic.scheme import Scheme as Scheme
    from laconic.sweeps.sweep import sweep as sweep

_HOMES = {
    "run": "laconic.api",
    "lora": "laconic.models.lora",
    "merged": "laconic.models.lora",
    "advise": "laconic.advice.answer",
    "sweep": "laconic.sweeps.sweep",
    "audit_run": "laconic.api",
    "AuditResult": "laconic.audit.result",
    "dead_leaves": "laconic.data.synthetic",
    "FunctionPopulation": "laconic.data.population",
    "Population": "laconic.data.population",
    "Records": "laconic.data.population",
    "LaconicError": "laconic.errors",
    "ScatteringFrontEnd": "laconic.features.scattering",
    "fourier_front_end": "laconic.features.tables",
    "public_front_end": "laconic.features.kinds",
    "Accountant": "laconic.privacy.accounting.accountant",
    "Budget": "laconic.privacy.accounting.budget",
    "calibrate_noise": "laconic.privacy.accounting.budget",
    "choose_bands": "laconic.privacy.mechanism.correlated",
    "CorrelatedGaussian": "laconic.privacy.mechanism.correlated",
    "Cyclic": "laconic.privacy.accounting.sampling",
    "AsPublished": "laconic.privacy.accounting.sampling",
    "FixedSize": "laconic.privacy.accounting.sampling",
    "Poisson": "laconic.privacy.accounting.sampling",
    "Experiment": "laconic.experiment.experiment",
    "Calibration": "laconic.experiment.calibrated",
    "calibrated": "laconic.experiment.calibrated",
    "Evaluations": "laconic.codecs.queries",
    "DiscreteGaussian": "laconic.privacy.mechanism.discrete_gaussian",
    "Gaussian": "laconic.privacy.mechanism.gaussian",
    "NoNoise": "laconic.privacy.mechanism.gaussian",
    "Observer": "laconic.observers.observer",
    "load": "laconic.export.loaded",
    "export_run": "laconic.export.export",
    "RunResult": "laconic.runner.outcome",
    "Run": "laconic.runner.run",
    "Scheme": "laconic.scheme",
}
__all__ = ["__version__", "schemes", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "schemes":
        return importlib.import_module("laconic.schemes")
    raise AttributeError(f"module 'laconic' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
