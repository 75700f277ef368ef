"""The one page of ``gavel label``: texts are data that only our own script reads, so none of them can run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from markupsafe import Markup

from gavel.launch.report.page import encode_script, load_templates, make_content_policy, read_asset

_SCRIPTS = ("dom", "label")


def render_page(data: Mapping[str, Any]) -> bytes:
    """Return the page with the questions in it."""
    head = load_templates().get_template("page.html.j2")
    text = head.render(
        title=f"{data['run']} · label",
        overview=None,
        style=Markup(_read_style()),
        script=Markup(_read_script()),
        policy=make_policy(),
    ).encode()
    before, after = text.split(b"<!--data-->")
    return before + b'<script type="application/json" id="labelling">%s</script>' % encode_script(data) + after


def make_policy() -> str:
    """Return the page's Content-Security-Policy: its own script, and this server alone."""
    return make_content_policy(_read_style(), _read_script(), live=True)


@cache
def _read_style() -> str:
    return read_asset("report.css") + read_asset("label.css")


@cache
def _read_script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(read_asset(f"{name}.js") for name in _SCRIPTS) + "\n})();\n"
