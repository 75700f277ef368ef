"""Certificates: what was measured of a bound judge, under digests that say of which, and the rule by which it
qualifies.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import orjson

from gavel.judges.bindings import Binding
from gavel.judges.calibration.report import CalibrationReport
from gavel.judges.calibration.statistics import Interval
from gavel.judges.panels import CASCADE
from gavel.judges.probing.probe import ProbeReport
from gavel.models.codec import dump, load, record, to_plain
from gavel.models.errors import InputError, NextCommand, shorten_value


class CertificateError(InputError):
    """A certificate that is missing, cannot be read, or does not qualify the judge."""


@record
class Certificate:
    """What is known of one binding: ``times`` are Unix seconds of the probe and the calibration, where they were
    made.
    """

    SCHEMA: ClassVar[str] = "gavel.certificate/1"

    binding: str
    binding_digest: str
    model: str
    revision: str | None
    server_version: str | None
    profile: str
    rubric_digest: str
    sampling: Mapping[str, Any]
    times: Mapping[str, float]
    probe: ProbeReport | None = None
    calibration: CalibrationReport | None = None


@record
class Qualification:
    """What a judge must have shown: ``min_kappa`` bounds the lower end of kappa's interval where a labelled set is
    configured, ``max_flip_rate`` the share of repeated calls with another label (None: reported only),
    ``reviewed_rows`` is how many labelled rows somebody must have reviewed (``gavel label``). ``required`` false lets
    training start without, which is recorded."""

    required: bool = True
    min_kappa: float = 0.7
    max_flip_rate: float | None = None
    labelled_set: bool = False
    reviewed_rows: int = 0


def make_path(folder: Path, binding: Binding) -> Path:
    """Return where the certificate of a binding lies: ``<folder>/<64 hex of the binding's digest>.json``."""
    return folder / f"{binding.digest.removeprefix('sha256:')}.json"


def read_certificate(folder: Path, binding: Binding) -> Certificate | None:
    """Return the certificate of a binding, or None if there is none.

    Raises:
        CertificateError: the file is damaged, or it is about another binding.
    """
    path = make_path(folder, binding)
    if not path.is_file():
        return None
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as failed:
        raise CertificateError(
            "this certificate is not JSON", where=str(path), found=str(failed), remedy="probe again"
        ) from None
    if not isinstance(value, dict):
        raise CertificateError(
            "this certificate is not an object", where=str(path), found=shorten_value(value), remedy="probe again"
        )
    found = load(Certificate, value, where=str(path), error=CertificateError)
    if found.binding_digest != binding.digest:
        raise CertificateError(
            "this certificate is about another binding",
            where=str(path),
            found=found.binding_digest,
            allowed=binding.digest,
            remedy="probe again",
        )
    return found


def find_known_fingerprint(folder: Path, binding: Binding) -> str | None:
    """Return the fingerprint of the model that the last probe of a binding met, for the next probe to compare with.

    Raises:
        CertificateError: as ``read_certificate``.
    """
    known = read_certificate(folder, binding)
    identity = known.probe.identity if known is not None and known.probe is not None else None
    return identity.fingerprint if identity is not None else None


def write_certificate(
    folder: Path,
    binding: Binding,
    *,
    probe: ProbeReport | None = None,
    calibration: CalibrationReport | None = None,
    now: float | None = None,
) -> Path:
    """Write what was measured into the binding's certificate, beside what is in it already; whole or not at all.

    Args:
        folder: the folder of certificates; made if missing.
        binding: what was measured.
        probe: a new probe's report.
        calibration: a new calibration's report.
        now: Unix seconds; None: the clock's.

    Raises:
        CertificateError: a report without a single verdict, or the old certificate cannot be read.
    """
    if any(report is not None and not report.graded for report in (probe, calibration)):
        raise CertificateError(
            "nothing was graded, so there is nothing to certify", field=binding.name, remedy="see the report for why"
        )
    known = read_certificate(folder, binding) or _make_blank(binding)
    stamp = time.time() if now is None else now
    if probe is not None:
        version = probe.server.version if probe.server else None
        known = replace(
            known, probe=probe, server_version=version or known.server_version, times={**known.times, "probe": stamp}
        )
    if calibration is not None:
        known = replace(known, calibration=calibration, times={**known.times, "calibration": stamp})
    path = make_path(folder, binding)
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".part-")
    with os.fdopen(handle, "wb") as file:
        file.write(orjson.dumps(orjson.loads(dump(known)), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    Path(temporary).replace(path)
    return path


def _make_blank(binding: Binding) -> Certificate:
    judge, rubric = binding.judge, binding.rubric
    return Certificate(
        binding=binding.name,
        binding_digest=binding.digest,
        model=binding.model,
        revision=judge.revision if judge else None,
        server_version=None,
        profile=rubric.profile,
        rubric_digest=rubric.digest,
        sampling=to_plain(rubric.sampling),
        times={},
    )


def list_shortcomings(certificate: Certificate, rules: Qualification) -> tuple[str, ...]:
    """Return why a judge does not qualify, in words; empty if it does. A cascade must have been measured with the
    labels it trusts.
    """
    probe, calibration = certificate.probe, certificate.calibration
    found = list(probe.failed) if probe is not None else ["it was never probed"]
    rate = probe.determinism.flip_rate if probe is not None and probe.determinism is not None else None
    if rules.max_flip_rate is not None and (rate is None or rate > rules.max_flip_rate):
        found.append(f"flip rate {'not measured' if rate is None else f'{rate:.3f}'}, allowed {rules.max_flip_rate:g}")
    if rules.labelled_set and calibration is None:
        found.append("a labelled set is configured, but it was never calibrated")
    elif rules.labelled_set and calibration is not None and not (calibration.kappa.low or 0.0) >= rules.min_kappa:
        found.append(
            f"kappa's lower bound is {calibration.kappa.low or 0.0:.3f}, at least {rules.min_kappa:g} is needed"
        )
    reviewed = round(calibration.items * calibration.reviewed_share) if calibration is not None else 0
    if reviewed < rules.reviewed_rows:
        found.append(
            f"{reviewed} labelled rows that somebody reviewed, at least {rules.reviewed_rows} are needed: "
            "gavel label RUN annotator=NAME, then gavel calibrate labelled=FILE"
        )
    cascade = calibration.cascade if calibration is not None else None
    if cascade is not None:
        found += [
            f"the cascade trusts {label}, whose certified precision is {_format_low(cascade.precisions.get(label))}, "
            f"at least {cascade.min_precision:g} is needed"
            for label in cascade.trusted
            if not _is_precise(cascade.precisions.get(label), cascade.min_precision)
        ]
    return tuple(found)


def _is_precise(precision: Interval | None, least: float) -> bool:
    return precision is not None and precision.low is not None and precision.low >= least


def _format_low(precision: Interval | None) -> str:
    return "not known" if precision is None or precision.low is None else f"{precision.low:.3f}"


def list_required(binding: Binding, rules: Qualification) -> list[tuple[Binding, Qualification]]:
    """Return what must qualify for a binding to: it, of a panel each member too, of a cascade its last judge. What a
    labelled set must show is asked of the whole.
    """
    alone = replace(rules, labelled_set=False, reviewed_rows=0)
    members = binding.members[-1:] if binding.rule is not None and binding.rule.combine == CASCADE else binding.members
    return [*((member, alone) for member in members), (binding, rules)]


def require_certificate(folder: Path, binding: Binding, rules: Qualification) -> Certificate | None:
    """Return the certificate that qualifies a binding; with ``required`` false whatever there is.

    Raises:
        CertificateError: there is none that matches, or it does not qualify; says every reason.
    """
    if not rules.required:
        return read_certificate(folder, binding)
    *members, whole = list_required(binding, rules)
    for member, own in members:
        _require_own(folder, member, own)
    return _require_own(folder, *whole)


def _require_own(folder: Path, binding: Binding, rules: Qualification) -> Certificate:
    certificate = read_certificate(folder, binding)
    if certificate is None:
        raise CertificateError(
            f"the judge of binding {binding.name} was never probed as it is composed now",
            where=str(make_path(folder, binding)),
            remedy=NextCommand(
                "probe",
                "run `gavel probe` with this composition",
                ", or set qualification.required=false (it is recorded)",
            ),
        )
    reasons = list_shortcomings(certificate, rules)
    if binding.rule is not None and binding.rule.trusted and certificate.calibration is None:
        reasons = (*reasons, "the labels that the cascade trusts were never measured: gavel calibrate labelled=FILE")
    if reasons:
        raise CertificateError(
            f"the judge of binding {binding.name} does not qualify",
            where=str(make_path(folder, binding)),
            found="; ".join(reasons),
            remedy="choose another judge or rubric, or set qualification.required=false (it is recorded)",
        )
    return certificate
