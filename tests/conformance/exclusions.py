"""Findings of schemathesis that are no faults, each with its reason. An answer must match in all four: the code of the
finding, the operation, the status and the error's own sentence. Everything else fails the test."""

import re

VALID_DATA_REFUSED = "ST202"
INVALID_DATA_ACCEPTED = "ST201"
UNDOCUMENTED_STATUS = "ST103"
WRONG_METHOD_ANSWERED = "ST204"

ANY = re.compile("")

EXCLUSIONS = [
    # Which image stacks there are is known to the hosts, not to the document; GET /v1/images lists them.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines$"), 400, r"stack must be one of the known image stacks"),
    # The smallest root disk is the size of the image.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines$"), 400, r"rootfs_size_gb must be at least \d+, the size of the image"),
    # A cursor is signed: no text that is made up is one, whatever its shape.
    (VALID_DATA_REFUSED, re.compile(r"GET "), 400, r"cursor must be the next_cursor of the page before"),
    # Which users, groups and folders a machine has is known inside of it only.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines/\{id\}/execs$"), 400, r"^no such (user|group): |^cwd is not a directory: "),
    # The token of a password reset comes by mail; no text that is made up is one.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/auth/reset-password$"), 400, r"token is unknown, was used or has expired"),
    # The password of an account is known to its owner only.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/auth/change-password$"), 400, r"current_password is not the password"),
    # A time that has passed is as well-formed as one that has not.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/api-keys$"), 400, r"expires_at must be a time in the future"),
    # A rule between two parameters, which a document cannot state.
    (VALID_DATA_REFUSED, re.compile(r"/activity$"), 400, r"to must not be before from"),
    # Every text, also in metadata of any depth, must be storable: no NUL. To say it, each string of the document and
    # each key of a free object would need the same pattern.
    (VALID_DATA_REFUSED, ANY, 400, r"must hold no NUL character and only well-formed Unicode"),
    # What is too long for a request line is refused before anybody knows which operation it was meant for.
    *[
        (code, ANY, 431, r"The path, the query and the headers must be at most 16 KiB")
        for code in (VALID_DATA_REFUSED, INVALID_DATA_ACCEPTED, UNDOCUMENTED_STATUS, WRONG_METHOD_ANSWERED)
    ],
    # The retired endpoint refuses everything, valid or not: that is its contract.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines/\{id\}/exec$"), 410, r"This endpoint was retired"),
    (INVALID_DATA_ACCEPTED, re.compile(r"POST /v1/machines/\{id\}/exec$"), 410, r"This endpoint was retired"),
]


def is_excluded(failure, case, response):
    return any(
        failure.code == code
        and operation.search(case.operation.label)
        and response.status_code == status
        and re.search(sentence, response.json()["detail"])
        for code, operation, status, sentence in EXCLUSIONS
    )
