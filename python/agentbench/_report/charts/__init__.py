"""What every chart of a report shows, computed from the tables of a run; nothing here draws.

``model`` says what a chart is; ``frames`` brings the tables of every kind of run into one form; ``latency``,
``timeline``, ``series``, ``shares``, ``tasks`` and ``capacity`` make the charts, ``figures`` reads those of questions
from matplotlib; ``panels`` says which stand where. Needs polars.
"""
