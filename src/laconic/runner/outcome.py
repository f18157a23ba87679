"""What a run leaves behind: the result object, the files that say the same, and the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import nn

from laconic.audience import Sentence, check_declared
from laconic.clients import wire
from laconic.errors import ConfigError, how_to_install
from laconic.experiment.about import about_dropouts, about_mechanism, about_noise, about_other_noise
from laconic.features.base import describe
from laconic.metrics import CLIENTS, columns
from laconic.privacy.accounting.releases import TRAINING
from laconic.privacy.released import (
    FederationFields,
    LedgerFields,
    Row,
    Statement,
    Summary,
    TestingFields,
    released_statement,
)
from laconic.privacy.statement import privacy_statement
from laconic.round import downlink_encoding, uplink_encoding
from laconic.runner.evaluation import ONE_CLASS, classified_figures
from laconic.runner.judged import in_detail, judged
from laconic.runner.progress import Progress
from laconic.runner.statement import about_attack, missing_noise, privacy_profile, rounds_covered_by_statement
from laconic.runner.tested import about_testing
from laconic.scheme import Scheme
from laconic.store.folder import RunFolder, json_text


@dataclass(frozen=True, repr=False)
class RunResult:
    """A finished run: the model, a row per round, the privacy statement, the bytes, and where the files are.

    `best` is the best evaluated round, chosen on the test data as the papers do; `last` is the last round. Both carry
    the ε of the statement, that of the whole run: which round is best is known only after all of them. What the best
    one would have had, had the run been planned to end there, is in `epsilon_if_planned_to_end_there`.

    Attributes:
        model: a copy of the module with the weights of the last round.
        history: a dictionary per round, as in `rounds.jsonl`.
        statement: the privacy statement, as in `privacy.json`.
        released_statement: the statement without what only the server may know.
        ledger: bytes, in all and per client and round.
        best: the row of the best evaluated round; None without test records.
        last: the row of the last round.
        stop_reason: 'rounds', 'budget' or 'patience'; of a federation also 'attempts'.
        seconds: time of the rounds.
        folder: the run folder, or None.
        profile: where the time went, with `profile=True`.
        metric: by which the best round was chosen.
        attack: what the attack was and what became of the run.
        group_testing: who was excluded by group testing.
        federation: of a federation, what was agreed, who was missing, and what is missing of the planned model.
        scheme: its name.
        warnings: what makes the result worth little, such as a model that always says the same.
        ranks: how many processes trained.
        answers: by query, what the last round in which it was asked has shown.
        judged: figures on test records with 95 % intervals, and in words whether the model is better than chance.

    Examples:
        >>> import torch
        >>> import laconic
        >>> clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(10)]
        >>> result = laconic.run(laconic.schemes.fl_std(local_lr=0.1, local_steps=1), model=torch.nn.Linear(8, 2),
        ...                      clients=clients, sampling_rate=1.0, rounds=2)
        >>> result.stop_reason, len(result.history), result.last["round"]
        ('rounds', 2, 2)
    """

    model: nn.Module
    history: list[Row]
    statement: Statement
    ledger: LedgerFields
    best: Row | None
    last: dict[str, Any]
    stop_reason: str
    seconds: float
    folder: Path | None
    profile: dict[str, float] | None = None
    metric: str = "accuracy"
    """By which the best round was chosen."""
    attack: dict[str, Any] | None = None
    """What the attack was and what became of the run, if there was one."""
    group_testing: TestingFields | None = None
    """Who was excluded by group testing, if there was any."""
    federation: FederationFields | None = None
    """What was agreed, who was missing, and what is missing of the planned model, in a federation."""
    scheme: str = ""
    """Its name."""
    warnings: tuple[str, ...] = ()
    """What makes the model worth little."""
    ranks: int = 1
    """How many processes trained, when the run ended."""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By query, what the last round in which it was asked has shown."""
    judged: dict[str, Any] = field(default_factory=dict)
    """Figures of the last model on test records with their intervals, and whether it is better than chance."""
    released_statement: Statement = field(default_factory=Statement)
    """The statement without what only the server may know."""

    def __repr__(self) -> str:
        from laconic.report.summary_lines import as_text, result_rows

        return as_text(result_rows(self.scheme, self.summary()))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from laconic.report.summary_lines import as_html, result_rows

        return as_html(result_rows(self.scheme, self.summary()))

    def to_pandas(self) -> Any:
        """The history as a `pandas.DataFrame`, one row per round; values of unevaluated rounds are missing."""
        try:
            import pandas
        except ImportError:
            raise ConfigError(f"to_pandas needs pandas: {how_to_install('tables')}") from None
        return pandas.DataFrame(self.history).set_index("round")

    def plot(self, metric: str | None = None, *, over: str = "round", axes: Any = None) -> Any:
        """The metric by which the best round was chosen, or another one, over 'round', 'bytes' or 'epsilon'.

        Draws on matplotlib `axes`, or on new ones, and returns them.
        """
        from laconic.report.plots import plot_run

        return plot_run(self.history, metric or self.metric, over, self.scheme, axes)

    def summary(self) -> Summary:
        """All of it but the model and the history, for JSON."""
        found: Summary = {
            "scheme": self.scheme,
            "stop_reason": self.stop_reason,
            "rounds": self.last["round"],
            "discarded": [
                {"round": row["round"], "why": row["discarded"]} for row in self.history if "discarded" in row
            ],
            "best": self.best,
            "best_is_chosen_by": self.metric,
            "best_is_chosen_on": "test data, as in the papers: optimistic, and not covered by the ε",
            "epsilon_is_of": "the whole run, also beside the best round: all rounds decide which one that is",
            "last": self.last,
            **({"judged": self.judged} if self.judged else {}),
            **({"answers": self.answers} if self.answers else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            **({} if self.attack is None else {"attack": self.attack}),
            **({} if self.group_testing is None else {"group_testing": self.group_testing}),
            **({} if self.federation is None else {"federation": self.federation}),
            "ledger": self.ledger,
            "statement": self.statement,
            **({"released_statement": self.released_statement} if self.released_statement else {}),
            "seconds": round(self.seconds, 2),
            **({} if self.ranks == 1 else {"ranks": self.ranks}),
            "profile": self.profile,
            "folder": str(self.folder) if self.folder else None,
        }
        check_declared(Summary, {name: value for name, value in found.items() if name not in ("ledger", "statement")})
        return found


def _profile(run: Progress, seconds: float) -> dict[str, float] | None:
    """Seconds by what they were spent on, with `profile=True`."""
    clock = run.clients.clock
    if not clock.on:
        return None
    named = dict(sorted(clock.seconds.items(), key=lambda item: -item[1]))
    return {name: round(value, 4) for name, value in (named | {"other": seconds - sum(named.values())}).items()}


def outcome_of(run: Progress, seconds: float) -> RunResult:
    """The result of a finished run; its files are written if it has a folder."""
    e, state = run.experiment, run.state
    sampling_rate = e.sampler.rate_in(e.population.num_clients)
    common: dict[str, Any] = {
        "num_clients": e.population.num_clients,
        "formula_bits": formula_bits(
            e.scheme, run.model.size, e.sampler.planned_cohort(e.population.num_clients), state.rounds
        ),
        "sampling_rate": sampling_rate,
    }
    best = state.best
    if best is not None:
        done = [row for row in run.history if row["round"] <= best["round"]]
        best = best | {"bytes_up": sum(r["bytes_up"] for r in done), "bytes_down": sum(r["bytes_down"] for r in done)}
        best = {_SHORTER.get(key, key): value for key, value in best.items()}
    statement = statement_of(run)
    whole, traffic = _epsilons(statement), run.ledger.summary(rounds=state.rounds, **common)
    result = RunResult(
        model=run.exported(),
        history=run.history,
        statement=statement,
        ledger=cast(LedgerFields, traffic | {"planned_messages": planned_messages(run)}),
        best=None if best is None else best | whole,
        last=run.history[-1] | whole,
        stop_reason=run.stop_reason,
        seconds=seconds,
        folder=run.path,
        profile=_profile(run, seconds),
        metric=run.evaluation.metric,
        attack=about_attack(run),
        group_testing=about_testing(run),
        federation=None if run.about_federation is None else run.about_federation(),
        scheme=e.scheme.name,
        warnings=tuple(_warnings(run)),
        ranks=run.clients.num_ranks,
        answers=_answers(run),
        judged=_judged(run) or {},
        released_statement=released_statement(statement) if statement["private"] else Statement(),
    )
    if run.folder:
        run.folder.write("summary.json", json_text(result.summary(), indent=2) + "\n")
        write_report(run, run.folder)
    return result


def _judged(run: Progress) -> dict[str, Any] | None:
    """The figures with intervals; None for a model that diverged, which has none."""
    return None if run.answers is None or "loss" not in run.history[-1] else judged(run.answers)


def _warnings(run: Progress) -> Iterator[str]:
    """A warning if the model has learnt nothing but which class is most frequent."""
    test, last, best = run.experiment.test, run.history[-1], run.state.best
    if test is None or ONE_CLASS not in last:
        return
    which, share = last[ONE_CLASS], float((test.targets == last[ONE_CLASS]).double().mean())
    names = run.experiment.class_names
    called = f"{which} ({names[which]})" if which < len(names) and names[which] != str(which) else f"{which}"
    ways = "more rounds, another --local-lr, --balance weights, or a smaller model"
    if run.experiment.scheme.private:
        ways += ", or less noise: a larger --epsilon, more clients, a smaller --clip-norm"
    text = (
        f"the model takes all {len(test.targets):,} test records for class {called}, and {share:.1%} of them are: its"
        f" accuracy of {last['accuracy']:.4f} says nothing; look at AUROC or loss (--best-by), and try {ways}"
    )
    if best is not None and ONE_CLASS not in best:
        text += f"; round {best['round']} still told classes apart (laconic predict --best)"
    yield text


def _answers(run: Progress) -> dict[str, dict[str, Any]]:
    """By query, the figures of the last round in which it was asked; evaluations are in the rows of their rounds."""
    found: dict[str, dict[str, Any]] = {}
    for row in run.history:
        query = run.experiment.scheme.query(row["round"])
        if query in run.experiment.scheme.queries:
            asked = {name: row[name] for name in columns(CLIENTS) if name in row}
            found |= {query.name: {"round": row["round"]} | asked} if query is not None and asked else {}
    return found


def planned_messages(run: Progress) -> dict[str, dict[str, int]]:
    """Bytes of one client's message up and down, by the kind of round.

    They follow from the scheme alone. A mean over messages of several kinds does not: it tells how many clients took
    part in each.
    """
    e, found = run.experiment, {}
    for name, kind in {} if e.scheme.pooled else e.mechanism.alone.items():
        number = next((n for n in range(1, e.rounds + 1) if e.scheme.phase(n).name == name), None)
        if number is not None:
            scheme, (code_size, weights) = e.scheme.at(number), run.clients.sizes(number)
            up = uplink_encoding(scheme, code_size, kind.typical_plan())
            down = downlink_encoding(scheme)
            found[name] = {"up": wire.message_size(code_size, up), "down": wire.message_size(weights, down)}
    return found


_SHORTER = {name: f"{name}_if_planned_to_end_there" for name in ("epsilon", "participant_epsilon")}


def _epsilons(statement: Statement) -> dict[str, float | None]:
    """Both ε of the statement, as rows call them."""
    if not statement["private"]:
        return {}
    released, participant = statement["released"], statement["participant"]
    return {
        "epsilon": released["epsilon"][released["accountant"]],
        "participant_epsilon": participant["epsilon"][participant["accountant"]],
    }


def formula_bits(scheme: Scheme, size: int, cohort: float, rounds: int = 0) -> tuple[float, float]:
    """Bits per message, up and down, as the papers count them: 32 per value (or what --downlink says), 1 per sign,
    log₂ m under FL-SIGN-DP. Of a run with votes or queries: the mean over so many `rounds`, if given."""
    planned = scheme.planned(rounds)
    if not any(count for name, count in planned.items() if name != TRAINING):
        return _message_bits(scheme, size, cohort)
    bits = [(planned[phase.name], _message_bits(phase.parts, size, cohort)) for phase in scheme.phases]
    up, down = (sum(count * kind[way] for count, kind in bits) / rounds for way in (0, 1))
    return up, down


def _message_bits(scheme: Scheme, size: int, cohort: float) -> tuple[int, int]:
    if scheme.pooled:
        return 0, 0
    code_size = scheme.codec.code_size(size)
    noisy = scheme.noise.bits_by_the_papers(code_size=code_size, cohort=max(1, round(cohort)))
    bits = scheme.codec.packing.bits if noisy is None else noisy
    return code_size * bits, downlink_encoding(scheme).bits * scheme.codec.downlink_size(size)


def statement_text(run: Progress) -> str:
    """The statement of what was charged so far, as it stands in the run folder."""
    return json_text(statement_of(run), indent=2) + "\n"


def statement_of(run: Progress) -> Statement:
    e = run.experiment
    not_covered: list[str] = list(e.notes)
    if e.scheme.private:
        if e.test is not None:
            looked = "test data was looked at in evaluated rounds; the best round was chosen on it"
            not_covered.append(Sentence.public(looked))
        if e.holdout is not None:
            not_covered.append(Sentence.public("early stopping looked at a held-out set"))
    assumptions = [
        *run.clients.assumed,
        *map(Sentence.public, e.scheme.train.declared),
        about_noise(e),
        *about_other_noise(e),
        *about_dropouts(e),
    ]
    if e.front_end is not None:
        what = f"the front end is public, fixed and not made from the clients' data: {describe(e.front_end)}"
        assumptions.append(Sentence.public(what))
    spent = rounds_covered_by_statement(run)
    result = _judged(run) if run.ended else None
    return privacy_statement(
        result=None if result is None else result["words"],
        accountant=run.accountant,
        budget=e.budget,
        rounds_charged=run.journal.num_charged,
        participations=spent.participations,
        rounds_planned=None if e.patience is None else spent.rounds,
        mechanism=about_mechanism(e),
        secure_aggregation=run.clients.about_sum,
        assumptions=assumptions,
        not_covered=not_covered,
        attack=missing_noise(run, spent),
    )


def write_report(run: Progress, folder: RunFolder) -> None:
    """`figures.json`, then `report.html` from all the files of the folder.

    The figures by class are of the test records and the last model, which are there anyway. They cost no privacy of the
    clients; the test records are not covered by any ε.
    """
    from laconic.report.page.document import run_page
    from laconic.report.page.reading import read_run

    answers = run.answers
    found: dict[str, Any] = {}
    if answers is not None:
        shifts = answers.shifts if len(answers.shifts) else None
        by_class = classified_figures(answers.outputs, answers.targets, names=answers.names, shifts=shifts)
        found = (by_class or {}) | in_detail(answers)
    figures = {"round": run.state.rounds, **found, "trade_off": privacy_profile(run)}
    folder.write("figures.json", json_text(figures) + "\n")
    folder.write("report.html", run_page(read_run(folder.path)))
