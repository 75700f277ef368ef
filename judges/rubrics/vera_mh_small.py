"""Profile ``gavel/vera-mh-small``: our own small rubric with two dimensions, asked as VERA-MH's is; for tests and
demos.
"""

from gavel.judges.rubrics import vera_mh as shared

PROFILE = shared.SMALL_PROFILE
TARGETS = shared.TARGETS
ASSETS = shared.SMALL_ASSETS
build = shared.build_small
