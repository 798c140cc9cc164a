"""A page with charts that needs no network: the plotting library is inside."""
from __future__ import annotations

import json
import pathlib
from typing import Any, Sequence

import jinja2
import vl_convert


def page(template: pathlib.Path, charts: Sequence[tuple[str, dict[str, Any]]], **values: Any) -> str:
    """template: extends page.html.j2. charts: of Vega-Lite, by the id of the element that each is drawn in."""
    # Inside of a script's element: its end and comments must not stand there, whatever a description says.
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")
    folders = [template.parent, pathlib.Path(__file__).parent]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template.name).render(charts=data, library=vl_convert.javascript_bundle(), **values)
