"""Records of finished runs as tables, figures and a page, beside what the paper reports."""
