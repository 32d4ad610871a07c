"""Extensions to upload: ``bessemer compile mlp.pt2 --extension examples/extensions/FILE.py``."""
