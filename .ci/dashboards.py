# SPDX-License-Identifier: Apache-2.0
"""Writer of the chart's Grafana dashboards and the page of their panels, from deploy/helm/dashboards.toml.

With --check it only reports differences.
"""

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef

_ROOT = Path(__file__).resolve().parents[1]
_HELM = _ROOT / "deploy/helm"
_PAGE = _ROOT / "docs/reference/dashboards.md"
_WRITTEN = _HELM / "updraft/dashboards"
_PODS = 'namespace=~"$namespace",pod=~"$pod"'
_DATASOURCE = DataSourceRef("prometheus", "$datasource")


def _panel(row: dict[str, Any]) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)  # noqa: FBT003 - the library's
    panel = timeseries.Panel().title(row["title"]).unit(row["unit"]).min(0).span(12).height(8)
    panel = panel.datasource(_DATASOURCE).legend(legend.placement(LegendPlacement.BOTTOM)).fill_opacity(10)
    for letter, (shown, query) in zip("ABC", row["queries"].items(), strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(query.replace("$pods", _PODS)).legend_format(shown)
        panel.with_target(target)
    return panel


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(name).datasource(_DATASOURCE).query(query)
    return variable.include_all(True).multi(True).all_value(".*")  # noqa: FBT003 - the library's own calls


def written(table: dict[str, Any]) -> str:
    """Return the JSON of one dashboard."""
    built = dashboard.Dashboard(table["title"]).uid(f"updraft-{table['name']}").tags(["updraft"])
    built = built.refresh("30s").time("now-3h", "now").readonly()
    prefix = "updraft_writer_quota_bytes" if table["name"] == "writers" else "updraft_workers"
    built.with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    built.with_variable(_variable("namespace", f"label_values({prefix}, namespace)"))
    built.with_variable(_variable("pod", f'label_values({prefix}{{namespace=~"$namespace"}}, pod)'))
    for row in table["panel"]:
        built.with_panel(_panel(row))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def page(tables: list[dict[str, Any]]) -> str:
    """Return the page of all dashboards: what each panel shows, by which query."""
    lines = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        "<!-- Written by `make docs` from deploy/helm/dashboards.toml. -->",
        "# Dashboards",
        "",
        "The chart's Grafana dashboards; [`monitoring.dashboards`](../../deploy/helm/updraft/README.md) installs them.",
        "Each shows the namespaces and pods that its variables select; `$pods` stands for them here.",
        "`make test-dashboards` runs every query on a real Prometheus that watches a real job.",
        "`make dashboard-screens` draws the pictures from its answers, without Grafana.",
    ]
    for table in tables:
        name = table["title"].partition(": ")[2].capitalize()
        lines += ["", f"## {name}", "", f"![{name}](../images/dashboard-{table['name']}.png)", ""]
        lines += ["| panel | query |", "| --- | --- |"]
        for row in table["panel"]:
            queries = "<br>".join(f"`{query}`".replace("|", "\\|") for query in row["queries"].values())
            lines.append(f"| {row['title']} | {queries} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the files; return 1 if they are out of step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the dashboards are in step")
    tables = tomllib.loads((_HELM / "dashboards.toml").read_text())["dashboard"]
    wanted = {_PAGE: page(tables), **{_WRITTEN / f"{table['name']}.json": written(table) for table in tables}}
    if not parser.parse_args().check:
        _WRITTEN.mkdir(exist_ok=True)
        for path, text in wanted.items():
            path.write_text(text)
        return 0
    found = {path: path.read_text() for path in (_PAGE, *_WRITTEN.glob("*.json"))}
    if found != wanted:
        print("the dashboards or their page differ from dashboards.toml: run `make docs`")
    return int(found != wanted)


if __name__ == "__main__":
    sys.exit(main())
