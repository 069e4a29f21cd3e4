"""Configuration of the documentation: Sphinx with MyST Markdown and notebooks."""

import optlearn

project = "optlearn"
author = "The optlearn developers"
copyright = f"2026, {author}"
version = release = optlearn.__version__

extensions = ["myst_nb"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
exclude_patterns = ["_build"]
html_title = "optlearn"
