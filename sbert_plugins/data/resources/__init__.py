"""Text written for this package: sentences for training offline, and graded pairs for evaluating afterwards."""
