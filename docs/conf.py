"""The site: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "benchmarks")]

import generate
from sphinx.ext import autosummary

import sbert_plugins

generate.main()

project = "sbert-plugins"
author = "the sbert-plugins contributors"
copyright = author
version = release = sbert_plugins.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_generated"]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
napoleon_custom_sections = ["Inputs", "Relations", "Deviations"]
napoleon_use_rtype = False  # Returns sections are sentences, not types
autodoc_typehints = "none"  # they repeat the text, and fill the screen of a phone
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80
highlight_language = "none"  # for blocks without a language
smartquotes = False  # two hyphens stay two hyphens

autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.",)  # a summary does not end there

html_theme = "furo"
html_title = "sbert-plugins"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_theme_options = {
    "source_repository": "https://github.com/sbert-plugins/sbert-plugins/",
    "source_branch": "main",
    "source_directory": "docs/",
}


def setup(app: Any) -> None:
    """Add equations as MathML, without a script from another site, and links to short names in docstrings."""
    app.add_html_math_renderer("mathml", (_math, None), (_math_block, None))
    app.connect("missing-reference", _in_this_package)


def _math(visitor: Any, node: nodes.Element) -> None:
    visitor.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _math_block(visitor: Any, node: nodes.Element) -> None:
    visitor.body.append(f'<div class="equation">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s in %s", error, node.astext(), location=node)
        return ""


def _in_this_package(app: Any, env: Any, node: nodes.Element, text: nodes.Element) -> nodes.Element | None:
    """Find ``functional.info_nce`` in ``sbert_plugins``."""
    if node.get("refdomain") != "py":
        return None
    found = (app.builder, node["reftype"], f"sbert_plugins.{node['reftarget']}", node, text)
    return env.domains["py"].resolve_xref(env, node["refdoc"], *found)
