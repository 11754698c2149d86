"""Measures the papers' figures on this machine and writes one page that shows them beside theirs."""

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cryptmpi_tools import needs_figures  # noqa: F401
from cryptmpi_tools import literature
from cryptmpi_tools.bench import machine, programs
from cryptmpi_tools.bench.turns import BEGAN, say
from cryptmpi_tools.conformance.suites import IMB as IMB_FOLDER
from cryptmpi_tools.lab.nodes import BUILD, LabError, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND, Sealing
from cryptmpi_tools.lab.stacks import stack
from cryptmpi_tools.model import command
from cryptmpi_tools.study import figures, models, outside, page, parts, planned, profiles, rows, starting, tunnels
from cryptmpi_tools.study.taking import Taking

FOLDER = BUILD / "study"
QUICK_MINUTES = 13.5  # and what the last part and the page take: less than 15
QUICK_PART_SECONDS, FULL_PART_SECONDS = 45, 1800
QUICK_TIMEOUT, FULL_TIMEOUT = 60, 300  # seconds for a start
FULL_NETWORKS = (parts.ETHERNET, parts.INFINIBAND, parts.BARE)  # of the programs of others
REPEATS_NOTE = {True: "Each repeat is a start of its own.",
                False: "The quick study ends a part after a while, whether the rule is met or not: each row says which. Several repeats come from "
                       "one start of a program; the rows say how many starts there were."}


def parse(words):
    parser = command.Parser(prog="cryptmpi study", description=__doc__, allow_abbrev=False)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="what each figure needs, in less than 15 minutes (the default)")
    length.add_argument("--full", action="store_true", help="all sizes, networks, MPIs and programs, by the papers' rule of repeating: hours")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run measured, and go on")
    parser.add_argument("--only", action="append", metavar="EXPERIMENT", help="only these (several allowed): pairs, flows, stencil-2d ...")
    parser.add_argument("--network", action="append", choices=["loopback", *parts.SHAPES], help="only on these networks (several allowed)")
    parser.add_argument("--minutes", type=float, help=f"begin nothing later than so; default: {QUICK_MINUTES}, of the full study no limit")
    parser.add_argument("--part-seconds", type=float,
                        help=f"of a part, whether the rule is met or not; default: {QUICK_PART_SECONDS}, of the full study {FULL_PART_SECONDS}")
    parser.add_argument("--timeout", type=float, help="seconds for a start of a program")
    parser.add_argument("--outside", action="store_true", help="programs of others in the quick study, too")
    parser.add_argument("--nas", type=Path, metavar="FOLDER", default=_folder("STUDY_NAS"), help="NAS parallel benchmarks, built (or STUDY_NAS)")
    parser.add_argument("--nas-class", default="S", metavar="CLASS", help="default: %(default)s")
    parser.add_argument("--osu", type=Path, metavar="FOLDER", default=_folder("STUDY_OSU"), help="OSU micro-benchmarks, built (or STUDY_OSU)")
    parser.add_argument("--imb", type=Path, metavar="FOLDER", default=_folder("STUDY_IMB") or IMB_FOLDER, help="with IMB-MPI1")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order in which the ways are started")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the page and all that belongs to it")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    options = parser.parse_args(words)
    options.minutes = options.minutes or (0 if options.full else QUICK_MINUTES)
    options.part_seconds = options.part_seconds or (FULL_PART_SECONDS if options.full else QUICK_PART_SECONDS)
    options.timeout = options.timeout or (FULL_TIMEOUT if options.full else QUICK_TIMEOUT)
    options.folder = options.folder.resolve()
    return options


def _folder(variable):
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def setting_of(options, modules):
    """(parts.Setting, [what this machine lacks])."""
    mpi = parts.the_mpi()
    why_not = {parts.WIREGUARD: tunnels.why_no_wireguard(), parts.IPSEC: tunnels.why_no_ipsec()}
    missing = [f"{way.name}: {why}" for way, why in why_not.items() if why]
    if mpi is None:
        raise LabError("no Open MPI is installed: run `make mpis`, or install the package openmpi-bin")
    cores = machine.cores()
    found = tuple((name, ciphers) for name, _, ciphers in modules)
    usable = tuple(way for way, why in why_not.items() if not why)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return parts.Setting(options.full, mpi, parts.mpis_with_room(cores), cores, found, usable, memory=memory), missing


def chosen_parts(options, setting, why_no_namespaces):
    """(parts, [why some are missing])."""
    chosen = (parts.full if options.full else parts.quick)(setting)
    some, missing = outside.planned_parts(setting, FULL_NETWORKS if options.full else (parts.ETHERNET,))
    chosen += some
    if options.full or options.outside or options.nas or options.osu:
        found, lacking = outside.parts(options, setting, FULL_NETWORKS if options.full else (parts.ETHERNET,))
        chosen += found
        missing += lacking
    if options.only:
        unknown = set(options.only) - {part.experiment for part in chosen}
        if unknown:
            known = ", ".join(dict.fromkeys(part.experiment for part in chosen))
            raise LabError(f"--only: no experiment called {', '.join(sorted(unknown))}; there are: {known}")
        chosen = [part for part in chosen if part.experiment in options.only]
    if options.network:
        chosen = [part for part in chosen if part.network in (*options.network, "core")]
    if why_no_namespaces:
        missing += [f"{part.title()}: {why_no_namespaces}" for part in chosen if part.network not in ("core", "loopback")]
        chosen = [part for part in chosen if part.network in ("core", "loopback")]
    if options.full:
        chosen = [replace(part, repeats=1) for part in chosen]
    if not chosen:
        raise LabError("; ".join(["nothing to measure is left by the options", *missing]))
    return chosen, missing


def take(options, networks, setting, chosen, crypto):
    """The Taking, with everything measured, and {(network, MPI): plans that tuning found}. What it uses lasts as long
    as the networks."""
    starter = programs.Starter(networks, options.folder, options.cryptmpi, 0, options.timeout)
    tuned = profiles.Profiles(starter, options.folder, options.full, options.resume)
    other = outside.Outside(starter, options)
    folder = options.folder / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = outside.WholeJobs(starter, folder, planned.Planning(starter, options.folder))
    started = {None: starting.Programs(starter, options.folder, tuned), "stencil": starting.Stencils(starter, folder),
               "cipher": crypto, "threads": crypto, "hpcc": jobs, "lammps": jobs, **{name: other for name in outside.PROGRAMS}}
    taking = Taking(options, chosen, started)
    limit = f"nothing is begun after {options.minutes:g} minutes" if options.minutes else "no limit of time"
    say(f"{len(chosen)} parts on {stack(setting.mpi).title}, {limit}; {machine.sentence(taking.load())}")
    tuned.make(chosen)
    taking.take_all()
    return taking, tuned.plans()


def make_study(options, measured):
    """(study.json's content, {name of a picture: PNG bytes})."""
    taking, found = measured.taking, measured.rows()
    built = [figures.built(figure, found) for figure in figures.FIGURES]
    built += models.built(found, options.folder / "models")
    built.append(planned.built(found, options.folder))
    # Those that neither have rows nor stand for something in a paper say nothing.
    built = [figure for figure in built if figure["rows"] or figure["paper"]]
    pictures = draw(built)
    mpis = {name: stack(name).title for name in dict.fromkeys(row["mpi"] for row in found) if name}
    settings = {name: getattr(options, name) for name in ("full", "resume", "minutes", "part_seconds", "seed", "nas_class")}
    method = {**{name: rows.rule_text(name) for name in ("mpi", "crypto")}, "repeats": REPEATS_NOTE[options.full]}
    study = {"figures": sorted(built, key=place_of), "papers": literature.TITLES,
             "machine": {**machine.facts(options.cryptmpi), **taking.load()}, "mpis": mpis,
             "modules": [f"module {name} {version}" for name, version, _ in measured.modules], "profiles": profiles.facts(measured.tuned),
             "settings": settings, "method": method, "not_measured": measured.missing + taking.problems,
             "seconds": round(time.monotonic() - BEGAN, 1)}
    return study, pictures


def place_of(figure):
    """By paper; in it figures by number, then the tables, then what has no number; ours that has its place beside one
    follows it."""
    number = figure["figure"]
    paper = ("N20", "C20", "E12", None).index(figure["paper"])
    if (figure["paper"], number) in figures.BESIDE:
        return (paper, 0, figures.BESIDE[figure["paper"], number])
    return (paper, 0, int(number)) if number.isdigit() else (paper, 1 if number.startswith("table") else 2, 0)


def draw(built):
    """Pictures by name; a figure that has one gets its name as "image"."""
    try:
        from cryptmpi_tools.study import drawing
    except ImportError:
        raise LabError("matplotlib is not installed (package python3-matplotlib): the page would have no pictures") from None
    pictures = {}
    kinds = {(figure.paper or None, figure.figure): figure.drawing for figure in figures.FIGURES}
    for figure in built:
        kind = figure.pop("drawing", None) or kinds.get((figure["paper"], figure["figure"]))
        if figure["rows"] and kind:
            name = f"{page.anchor(figure)}.png"
            pictures[name] = drawing.png(kind, figure["rows"])
            figure["image"] = name
    return pictures


def write(options, study, pictures):
    for old in options.folder.glob("*.png"):
        old.unlink()
    for name, picture in pictures.items():
        (options.folder / name).write_bytes(picture)
    (options.folder / "study.json").write_text(json.dumps(study, indent=1, allow_nan=False) + "\n")
    (options.folder / "index.html").write_text(page.page(study, pictures))


@dataclass(frozen=True)
class Measured:
    """What came of it all."""

    taking: Taking
    tuned: dict     # {(network, MPI): tune.plans.Plans}
    threads: dict   # {our plan: how many threads seal}
    modules: tuple  # (name, version, ciphers) of each
    missing: list   # what could not be measured, and why

    def rows(self):
        found = [row for taken in self.taking.all for row in rows.rows_of(taken)]
        return profiles.described(found, self.tuned, self.threads)


def measure(options):
    """All that the options want, as Measured."""
    why_no_namespaces = acquire_namespaces()
    end_on_signals()
    let_root_start_jobs()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tunnels.TunnelNetworks() as networks:
        Sealing(options.folder / "config", networks.lab("loopback"), options.cryptmpi)  # makes the key before anything is timed
        crypto = starting.Crypto(options.cryptmpi)
        modules, unusable = crypto.found()
        setting, lacking = setting_of(options, modules)
        chosen, missing = chosen_parts(options, setting, why_no_namespaces)
        taking, tuned = take(options, networks, setting, chosen, crypto)
    return Measured(taking, tuned, parts.threads_of_plans(setting), modules, unusable + lacking + missing)


def main(words):
    options = parse(words)
    measured = measure(options)
    study, pictures = make_study(options, measured)
    write(options, study, pictures)
    drawn = sum(bool(figure["rows"]) for figure in study["figures"])
    print(f"\n{drawn} of {len(study['figures'])} figures and tables have rows. {machine.sentence(study['machine'])}.")
    for line in study["not_measured"]:
        print(f"NOT MEASURED: {line}")
    print(f"Page: {options.folder / 'index.html'}; data: study.json; pictures: *.png")
    return 1 if any(not taken.samples.keys() for taken in measured.taking.all) else 0


if __name__ == "__main__":
    run_program("study", main, sys.argv[1:], goes_on=", and --resume goes on from here")
