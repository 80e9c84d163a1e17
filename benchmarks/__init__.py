"""walstore beside its peers, in one run, on the same editing histories.

- Every measurement is a child process of its own; the child times only the measured section.
- A figure means something only beside the others of the same run: ratios are the findings.
- Peers live in environments of their own under `.cache/bench`; nothing else is installed.
"""
