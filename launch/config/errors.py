"""What Hydra, OmegaConf and the YAML reader complain about, in our words; none of them may suggest to add a key."""

from __future__ import annotations

import yaml
from hydra.errors import MissingConfigException
from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue, OmegaConfBaseException

from gavel.models.errors import ConfigError, find_nearest, shorten_value


def explain_error(failed: Exception, where: str = "") -> ConfigError:
    """Return the error a user should see for one raised while a config was read or composed; ``where`` is the file it
    must be in if the error does not say so itself."""
    if isinstance(failed, yaml.MarkedYAMLError):
        return _explain_yaml(failed, where)
    if isinstance(failed, MissingConfigException):
        return _explain_missing_file(failed, where)
    inner = _find_innermost(failed)
    key = str(getattr(inner, "full_key", None) or "")
    if isinstance(inner, MissingMandatoryValue):
        return ConfigError("this key must be set", field=key, remedy=f"add {key}=…")
    if isinstance(inner, InterpolationKeyError):
        return ConfigError(
            "this refers to a key that does not exist",
            field=key,
            found=_get_first_line(inner),
            remedy="correct the name in ${…}",
        )
    return ConfigError(
        "the config cannot be composed",
        where=where,
        field=key,
        found=_get_first_line(inner),
        remedy=_suggest_remedy(failed),
    )


def _find_innermost(failed: BaseException) -> BaseException:
    while failed.__cause__ is not None:
        failed = failed.__cause__
    return failed


def _get_first_line(failed: BaseException) -> str:
    text = str(failed.msg) if isinstance(failed, OmegaConfBaseException) and failed.msg else str(failed)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shorten_value(lines[0] if lines else type(failed).__name__, 240)


def _suggest_remedy(failed: Exception) -> str:
    return (
        "an experiment may only `override` groups that exist: see gavel VERB --help"
        if "override" in str(failed)
        else ""
    )


def _explain_missing_file(failed: MissingConfigException, where: str) -> ConfigError:
    missing = str(failed.missing_cfg_file or "")
    group, _, name = missing.rpartition("/")
    options = [str(option) for option in failed.options or ()]
    near = find_nearest(name, options)
    return ConfigError(
        "there is no such choice",
        where=where,
        field=group,
        found=name,
        allowed=", ".join(options),
        remedy=f"did you mean `{near[0]}`?" if near else "",
    )


def _explain_yaml(failed: yaml.MarkedYAMLError, where: str) -> ConfigError:
    mark = failed.problem_mark
    place = f"{where or mark.name}:{mark.line + 1}" if mark else where
    return ConfigError("this is not valid YAML", where=place, found=shorten_value(failed.problem or str(failed)))
