"""Formulas as MathML Core, which browsers draw themselves: no script, no request, no LaTeX.

A formula that cannot be converted is a warning, and with -W an error.
"""

from html import escape

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
MACROS = {"dd": r"\mathrm{d}", "EE": r"\mathbb{E}", "erf": r"\operatorname{erf}"}
CONVERTER = LatexToMathML(macros=MACROS)


def convert(latex: str, node: nodes.Node, *, block: bool) -> str:
    """MathML of a formula; its source in case of an error."""
    try:
        return CONVERTER.convert_with_local_state(latex, displaystyle=block)
    except LatexError as error:
        logger.warning("formula %r: %s", latex, error, location=node, type="mathml")
        return f"<code>{escape(latex)}</code>"


def inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(convert(node.astext(), node, block=False))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A line of its own, which scrolls if it is wider than the page, and its number."""
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(f'<div class="scrolls">{convert(node.astext(), node, block=True)}</div></div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
