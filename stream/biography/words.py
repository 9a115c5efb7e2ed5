"""The words that names and values are made of: invented ones, except months, fields of study and the like."""

from ...errors import ConfigError

_ONSETS = (
    "b", "br", "c", "d", "dr", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v", "w",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u")
_CODAS = ("l", "n", "r", "m", "s", "t")
_STEMS = tuple(f"{o}{v}{c}".capitalize() for o in _ONSETS for v in _VOWELS for c in _CODAS)
# Endings have three letters and belong to one kind of word only, so that no word has two meanings.
_ENDINGS = {
    "first name": ("ian", "ena", "iel", "ora", "ick", "eth", "una", "ard"),
    "middle name": ("ana", "eus", "ita", "olf", "ine", "ert", "ois", "ula"),
    "last name": ("son", "ley", "man", "ott", "ski", "ell", "ing", "ane"),
    "place": ("ham", "ton", "via", "ovo", "bay", "ges", "dal", "nia"),
    "university": ("ock", "ris", "ust", "een", "alt", "orn", "ave", "uth"),
    "company": ("tec", "cor", "lux", "zon", "net", "dyn", "vex", "pax"),
    "city": ("wic", "rup", "pol", "sby", "zen", "lec", "tor", "mun"),
}
_INVENTED = 8 * len(_STEMS)  # words of a kind
_STRIDE = 1_777  # without a common divisor with that, so that neighbours in a list are unlike

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_SCHOOLS = (
    "University", "College", "Institute", "Academy", "School", "Polytechnic", "Seminary", "Conservatory",
    "Lyceum", "Hall", "Athenaeum", "Campus", "Collegium", "Gymnasium", "Foundation", "Centre", "Union",
    "Abbey", "Observatory", "Cloister",
)  # fmt: skip
_TRADES = (
    "Systems", "Foods", "Motors", "Labs", "Media", "Energy", "Bank", "Airlines", "Steel", "Textiles",
    "Software", "Shipping", "Insurance", "Chemicals", "Robotics", "Optics", "Paper", "Glass", "Toys",
    "Books",
)  # fmt: skip
_FIELDS = (
    "Accounting", "Acoustics", "Aesthetics", "Agronomy", "Algebra", "Anatomy", "Anthropology",
    "Archaeology", "Architecture", "Astronomy", "Astrophysics", "Bacteriology", "Biochemistry",
    "Bioinformatics", "Biology", "Biophysics", "Botany", "Business", "Calligraphy", "Cartography",
    "Ceramics", "Chemistry", "Choreography", "Cinematography", "Climatology", "Composition", "Cosmology",
    "Criminology", "Cryptography", "Cybernetics", "Dance", "Demography", "Dentistry", "Dermatology",
    "Design", "Dramaturgy", "Ecology", "Econometrics", "Economics", "Education", "Electronics",
    "Engineering", "Entomology", "Epidemiology", "Ethics", "Ethnology", "Finance", "Folklore", "Forestry",
    "Genetics", "Geodesy", "Geography", "Geology", "Geometry", "Geophysics", "Glaciology", "Grammar",
    "History", "Horticulture", "Hydrology", "Immunology", "Informatics", "Journalism", "Jurisprudence",
    "Kinesiology", "Law", "Lexicography", "Linguistics", "Literature", "Logic", "Logistics", "Management",
    "Marketing", "Mathematics", "Mechanics", "Medicine", "Metallurgy", "Meteorology", "Microbiology",
    "Mineralogy", "Music", "Mycology", "Neuroscience", "Nursing", "Nutrition", "Oceanography", "Optometry",
    "Ornithology", "Painting", "Palaeontology", "Pathology", "Pedagogy", "Pharmacology", "Philology",
    "Philosophy", "Physics", "Physiology", "Politics", "Psychology", "Sociology", "Statistics", "Theology",
    "Zoology",
)  # fmt: skip
_LISTS = {
    "month": _MONTHS,
    "day": tuple(str(day) for day in range(1, 29)),
    "year": tuple(str(year) for year in range(1999, 1699, -1)),
    "school": _SCHOOLS,
    "trade": _TRADES,
    "field": _FIELDS,
}


def words_of(kind: str, count: int, option: str) -> tuple[str, ...]:
    """The first words of a kind.

    Args:
      kind: "first name", "middle name", "last name", "place", "university", "company", "city", "month",
        "day", "year", "school", "trade" or "field".
      count: how many.
      option: what asked for so many, for the message.

    Raises:
      ConfigError: there are fewer.

    >>> words_of("first name", 3, "names")
    ('Balian', 'Fataen', 'Koniel')
    """
    available = _INVENTED if kind in _ENDINGS else len(_LISTS[kind])
    if count > available:
        raise ConfigError(f"{option}: expected at most {available} words of the kind {kind!r}; found {count}")
    if kind not in _ENDINGS:
        return _LISTS[kind][:count]
    return tuple(_invented(_ENDINGS[kind], number) for number in range(count))


def _invented(endings: tuple[str, ...], number: int) -> str:
    ending, stem = divmod(number * _STRIDE % _INVENTED, len(_STEMS))
    return _STEMS[stem] + endings[ending]
