"""Judges: pinned assets, rubrics, bindings, the judge that grades with them, and what qualifies one."""
