"""The run as one page for a browser: self-contained, whole without JavaScript."""
