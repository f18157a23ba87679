"""The declared options as flags of a command, and what was given as a configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Any

import click

from laconic.options.declare import Declared
from laconic.settings.config import RunConfig, every_option, parse_set, parse_value, read_toml


class Number(click.ParamType[float]):
    """A number; a fraction such as 1/60 is one too."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number (write 0.0167 or 1/60)", param, ctx)


class NumberOrWord(Number):
    """A number, several between commas, or a word that the command knows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "," in str(value):  # the scheme reads them
            return value
        if str(value).replace("-", "").isalpha() and str(value).lower() not in ("nan", "inf", "infinity"):
            return value
        return super().convert(value, param, ctx)


class CountOrWord(click.ParamType[Any]):
    """A whole number, or a word that the command knows."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).isalpha() else click.INT.convert(value, param, ctx)


NUMBER, NUMBER_OR_WORD, COUNT_OR_WORD = Number(), NumberOrWord(), CountOrWord()


papers_option = click.option(
    "--papers", is_flag=True, help="Show ε by every accountant, not only the tight one, and the papers' own formulas."
)
"""By default there is one ε per adversary."""

prevalence_option = click.option(
    "--prevalence",
    help="The share of the positive class among those to predict for; or of all classes, as 0.5,0.3,0.2.  [training's]",
)
"""By which probabilities are moved."""


class AllMissing(click.Command):
    """A command that names everything that is missing, not only the first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            values, _, _ = self.make_parser(ctx).parse_args(given)
            params = self.get_params(ctx)
            missing = [param for param in params if param.value_is_missing(param.consume_value(ctx, values)[0])]
            names = [param.get_error_hint(ctx).strip("'") for param in missing if param.required]
            if {"sampling_rate", "cohort_size"} <= {param.name for param in missing}:  # one of them is needed
                names.append("--sampling-rate (or --cohort-size with --num-clients)")
            raise click.UsageError(f"missing: {', '.join(names)}", ctx) from None


def _kind(option: Declared) -> dict[str, Any]:
    """What click is told of the type."""
    if option.types == (bool,):
        return {"is_flag": True} if option.default is False else {"type": bool}
    if option.types[0] is str:
        return {"type": str}
    if str in option.types:
        return {"type": NUMBER_OR_WORD if float in option.types else COUNT_OR_WORD}
    return {"type": {int: int, float: NUMBER, str: str}[option.types[0]]}


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add every declared option that has a flag, `--set` and `--model-option` to a command."""
    command = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any key of the configuration.")(
        command
    )
    command = click.option(
        "--model-option", "model_options", multiple=True, metavar="KEY=VALUE", help="An option of the model's factory."
    )(command)
    return declared_options()(command)


def declared_options(flags: Collection[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add every declared option that has a flag, or those of these flags, to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(every_option()):
            if option.flag and (not flags or option.flag in flags):
                text = f"{option.about.help}  [{option.default_text}]" if option.default_text else option.about.help
                place = option.path.replace(".", "__")
                kind = _kind(option) | _completed(option.about.choices)
                command = click.option(option.flag, place, default=None, help=text, **kind)(command)
        return command

    return add


def _completed(choices: Collection[str]) -> dict[str, Any]:
    """Let a shell complete the values that an option may have."""
    if not choices:
        return {}
    return {"shell_complete": lambda context, option, typed: [name for name in choices if name.startswith(typed)]}


def config_values(options: dict[str, Any], sets: tuple[str, ...], model_options: tuple[str, ...]) -> dict[str, Any]:
    """The values that the user gave, by their place in the configuration; --set wins over the flags."""
    from laconic.errors import ConfigError

    values = {name.replace("__", "."): value for name, value in options.items() if value is not None}
    for text in model_options:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--model-option {text}: write it as key=value")
        values[f"model.{key}"] = parse_value(value)
    return values | dict(parse_set(text) for text in sets)


def requested_config(what: str | None, values: dict[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration from a scheme's name or a TOML file plus the given values; and all values asked for."""
    asked: dict[str, Any] = {}
    if what is not None and (what.endswith(".toml") or "/" in what):
        for section, keys in RunConfig.from_dict(read_toml(what)).to_dict().items():
            asked |= {f"{section}.{key}": value for key, value in keys.items()}
    elif what is not None:
        from laconic.catalogue import scheme_entry
        from laconic.settings.config import AUTO

        if what != AUTO:
            scheme_entry(what)
        asked["scheme.name"] = what if ":" in what else what.lower()
    asked |= values
    return RunConfig().with_values(asked), asked
