"""What is known of the judges that graded a run: a line for each that never qualified, so that no figure stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gavel.judges.bindings import Binding
from gavel.judges.certificate import CertificateError, Qualification, read, shortcomings


def qualification(bindings: Mapping[str, Binding], certificates: Path) -> list[str]:
    """Return one line per binding: qualified, not qualified and why, or never probed."""
    return [_line(name, binding, certificates) for name, binding in bindings.items()]


def _line(name: str, binding: Binding, certificates: Path) -> str:
    try:
        certificate = read(certificates, binding)
    except CertificateError as failed:
        return f"judge of {name}: {failed.problem} ({failed.where})"
    if certificate is None:
        return f"judge of {name}: never probed; `gavel probe` with the same env=… and judge=… says whether its grades can be trusted"
    reasons = shortcomings(certificate, Qualification())
    if reasons:
        return f"judge of {name}: not qualified, so these figures say little: {len(reasons)} checks failed, the first: {reasons[0]}"
    return f"judge of {name}: qualified (probed against {certificate.profile})"
