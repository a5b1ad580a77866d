"""The diagnosis: correct and wrong stages, the arithmetic of one element, cause and cure."""

from weft.diagnose.shown import RowExcerpt

from ..markup import Child, Markup, tag
from ..records import Diagnosed, Stage, StageState
from .parts import rows, section

SIGNS = {
    StageState.RIGHT: ("right", "✓"),
    StageState.WRONG: ("wrong", "✕"),
    StageState.LOST: ("lost", "?"),
    StageState.UNSEEN: ("unseen", "·"),
    StageState.AFTER: ("after", "·"),
}


def stages_section(found: Diagnosed) -> Markup:
    """Return the stages in the order of computation."""
    listed: list[tuple[str, Child]] = [("case", tag("code", found.case))]
    if found.where:
        listed.append(("first wrong", found.where))
    if found.made_by:
        listed.append(("made by", tag("code", found.made_by)))
    if found.arithmetic:
        listed.append(("one element", tag("pre", "\n".join(found.arithmetic))))
    listed += [("known as", [tag("code", each.name), f" · {each.value}"]) for each in found.known_as]
    listed += [(each.name, each.value) for each in found.notes]
    if found.line is not None:
        listed.append(("look at", _line_link(found.line)))
    if found.fix_line is not None:
        listed.append(("fix at", _line_link(found.fix_line)))
    if found.cure:
        listed.append(("cure", tag("strong", found.cure)))
    return section(
        "stages",
        "First wrong stage",
        found.sentence,
        tag("ol", [_stage(each) for each in found.stages], class_="stages") if found.stages else None,
        _excerpt(found.excerpt) if found.excerpt is not None else None,
        rows(listed),
    )


def _line_link(line: int) -> Markup:
    return tag("a", f"line {line}", href=f"#L{line}", data_line=line)


def _stage(stage: Stage) -> Markup:
    kind, sign = SIGNS[stage.state]
    said = str(stage.state) if not stage.detail or stage.state is StageState.RIGHT else stage.detail
    if stage.state is StageState.RIGHT and stage.detail:
        said = f"right · {stage.detail}"
    return tag(
        "li",
        tag("div", tag("span", stage.name), tag("span", sign, class_="sign", aria_hidden="true"), class_="name"),
        tag("div", stage.meaning, class_="meaning"),
        tag("div", said, class_="state"),
        class_=f"stage {kind}",
    )


def _excerpt(shown: RowExcerpt) -> Markup:
    """Return expected above actual values; wrong ones are marked."""
    kinds = ["wrong" if wrong else None for wrong in shown.wrong]
    actual = ["?" if value is None else f"{value:.5g}" for value in shown.actual]
    actual = [f"✕ {value}" if wrong else value for value, wrong in zip(actual, shown.wrong, strict=True)]
    lines = [
        tag("tr", tag("th", shown.label, scope="row"), [tag("th", number, scope="col") for number in shown.numbers]),
        tag("tr", tag("th", "expected", scope="row"), [tag("td", f"{value:.5g}") for value in shown.expected]),
        tag(
            "tr",
            tag("th", "actual", scope="row"),
            [tag("td", value, class_=kind) for value, kind in zip(actual, kinds, strict=True)],
        ),
    ]
    table = tag("table", tag("tbody", lines), class_="excerpt")
    region = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Expected and actual values")
    return tag("div", region, class_="panel table-panel")
