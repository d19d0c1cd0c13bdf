"""What every chart of a report shows, computed from the tables of a run; nothing here draws.

``model`` says what a chart is; ``frames`` brings the tables of every kind of run into one form; ``latency``,
``timeline``, ``series``, ``shares`` and ``capacity`` make the charts; ``panels`` says which stand where. Needs polars.
"""
