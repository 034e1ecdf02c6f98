"""Experiments: one script a question, each writing one CSV file with provenance.

Run as ``python -m experiments.NAME``.
"""
