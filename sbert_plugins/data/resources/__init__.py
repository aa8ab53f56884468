"""Text written for this project: sentences to train on offline, and graded pairs to look at afterwards."""
