"""What is known of the judges that graded a run: a line for each that never qualified, so that no figure stands
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gavel.judges.bindings import Binding
from gavel.judges.certificate import CertificateError, Qualification, list_required, list_shortcomings, read_certificate
from gavel.launch.assembly.assemble import assemble_run
from gavel.launch.config.schema import RolloutConfig, TrainConfig
from gavel.models.codec import record
from gavel.models.errors import GavelError


@record
class Standing:
    """What is known of one binding's ``judge`` (its model); ``line`` says it in words, as the terminal does."""

    binding: str
    judge: str
    state: Literal["qualified", "not qualified", "never probed", "none", "unknown"]
    line: str


def describe_qualification(bindings: Mapping[str, Binding], certificates: Path) -> list[str]:
    """Return one line per binding: qualified, not qualified and why, or never probed."""
    return [standing.line for standing in read_standings(bindings, certificates)]


def read_standings(bindings: Mapping[str, Binding], certificates: Path) -> tuple[Standing, ...]:
    """Return what is known of each binding's judge."""
    return tuple(_make_standing(name, binding, certificates) for name, binding in bindings.items())


def read_run_standings(config: RolloutConfig | TrainConfig, run: Path) -> tuple[Standing, ...]:
    """Return what is known of the judges of the run at ``run``; nothing is downloaded for it and no credential is
    needed.
    """
    quiet = replace(config, dry_run=True, assets=replace(config.assets, offline=True))
    try:
        bindings = assemble_run(quiet, with_policy=isinstance(quiet, RolloutConfig)).bindings
    except GavelError as failed:  # its assets are gone, or it was made with a plugin that is not installed here
        line = f"judge: nothing is known of its qualification: {str(failed).splitlines()[0]}"
        return tuple(Standing(name, "", "unknown", line) for name in config.judging.bindings)
    return read_standings(bindings, _find_folder(config.certificates, run))


def _find_folder(name: str, run: Path) -> Path:
    """Return the folder of certificates; one named by a relative path also where the run was made: the nearest above
    it.
    """
    place = Path(name).expanduser()
    places = (place, *(above / place for above in run.absolute().parents))
    return next((one for one in places if one.is_dir()), place)


def _make_standing(name: str, binding: Binding, certificates: Path) -> Standing:
    judge = binding.model
    for member, _ in list_required(binding, Qualification())[:-1]:
        standing = _make_standing(member.name, member, certificates)
        if standing.state != "qualified":
            return replace(standing, binding=name, judge=judge)
    if binding.judge is not None and binding.judge.is_none:
        return Standing(name, judge, "none", f"judge of {name}: none, no judge is asked")
    try:
        certificate = read_certificate(certificates, binding)
    except CertificateError as failed:
        return Standing(name, judge, "unknown", f"judge of {name}: {failed.problem} ({failed.where})")
    if certificate is None:
        how = "`gavel probe` with the same env=…, rubrics and judge=… says whether its grades can be trusted"
        return Standing(name, judge, "never probed", f"judge of {name}: never probed; {how}")
    reasons = list_shortcomings(certificate, Qualification())
    if reasons:
        why = f"{len(reasons)} checks failed, the first: {reasons[0]}" if reasons[1:] else reasons[0]
        return Standing(
            name, judge, "not qualified", f"judge of {name}: not qualified, so these figures say little: {why}"
        )
    return Standing(name, judge, "qualified", f"judge of {name}: qualified (probed against {certificate.profile})")
