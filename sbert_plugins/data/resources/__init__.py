"""Text written for this package: sentences to train on offline, and graded pairs to evaluate with."""
