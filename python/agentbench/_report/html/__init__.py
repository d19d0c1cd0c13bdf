"""A report as one HTML file that needs no network: ``page`` writes it, ``cards`` its headline, ``draw`` its charts.

What it shows is made elsewhere: sections by the report, charts by ``charts``. Needs the extra ``report``.
"""
