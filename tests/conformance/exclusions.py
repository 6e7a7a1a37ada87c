"""Findings of schemathesis that are not faults of the service, each with its reason. An exclusion applies only when all
four match: the code of the finding, the operation, the HTTP status and the error's detail. Any other finding fails the
test."""

import re

VALID_DATA_REFUSED = "ST202"
INVALID_DATA_ACCEPTED = "ST201"
UNDOCUMENTED_STATUS = "ST103"
WRONG_METHOD_ANSWERED = "ST204"

ANY = re.compile("")

EXCLUSIONS = [
    # The document cannot list the image stacks, because they depend on the hosts. GET /v1/images lists them.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines$"), 400, r"stack must be one of the known image stacks"),
    # The smallest allowed root disk depends on the size of the image, which the document cannot state.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines$"), 400, r"rootfs_size_gb must be at least \d+, the size of the image"),
    # The largest machine depends on the hosts of the service, which the document cannot state.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines$"), 400, r"must be at most \d+, the (cores|memory) of the largest host of this service"),
    # Cursors are signed, so the service refuses every generated cursor, even one of the right format.
    (VALID_DATA_REFUSED, re.compile(r"GET "), 400, r"cursor must be the next_cursor of the page before"),
    # The users, groups and folders of a machine are known only inside the machine.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/machines/\{id\}/execs$"), 400, r"^no such (user|group): |^cwd is not a directory: "),
    # The service sends the token of a password reset by mail, so it refuses every generated token.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/auth/reset-password$"), 400, r"token is unknown, was used or has expired"),
    # schemathesis does not know the current password of the account.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/auth/change-password$"), 400, r"current_password is not the password"),
    # The document can state the format of a time, but not that it must be in the future.
    (VALID_DATA_REFUSED, re.compile(r"POST /v1/api-keys$"), 400, r"expires_at must be a time in the future"),
    # OpenAPI cannot state a rule between two parameters.
    (VALID_DATA_REFUSED, re.compile(r"/activity$"), 400, r"to must not be before from"),
    # PostgreSQL cannot store NUL characters, so no string may have one, at any depth of metadata. To state this, every
    # string and every free-form key in the document would need the same pattern.
    (VALID_DATA_REFUSED, ANY, 400, r"must hold no NUL character and only well-formed Unicode"),
    # The HTTP server refuses a request line or headers of more than 16 KiB before it knows the operation.
    *[
        (code, ANY, 431, r"The path, the query and the headers must be at most 16 KiB")
        for code in (VALID_DATA_REFUSED, INVALID_DATA_ACCEPTED, UNDOCUMENTED_STATUS, WRONG_METHOD_ANSWERED)
    ],
    # The retired endpoint answers every request with 410, valid or not.
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
