"""The database: candidates, evaluations, verdicts, insights, journal, artefacts."""
