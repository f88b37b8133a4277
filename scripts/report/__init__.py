"""From run folders alone, without jax: tables, figures and one page.

runs        the folders of runs -> Run, and why a folder was left out
commands    the config of a run -> the command that makes it
settings    runs that differ in their seeds only -> Setting, with its scores
statistics  differences between settings, paired over seeds, corrected for their number
table       one Table -> markdown, csv, LaTeX, HTML
benchmarks  Long Range Arena, Speech Commands and other tasks, beside the published rows
studies     ablations, costs, state energies in numbers, what is missing
stability   state energies as records
charts      all figures, as what scripts/figures.py draws
page        report.md and report.html
"""
