package probe

import "strings"

// hints say what usually causes a failed identity check, for the person who
// has to fix it.
// Source: contract "Identity is cross-checked, not trusted".
var hints = map[string]string{
	"provider":                          "echo your own coordinate as the envelope spells it",
	"placement":                         "echo the placement of your envelope",
	"state":                             "provisioning after provision, active after activate and after resume",
	"workspace_id":                      "echo the request; do not map it to an account of yours",
	"session_id":                        "echo the request; a resumed instance has the new request's Session",
	"run_id":                            "echo the request",
	"attempt_id":                        "echo the request; an attempt is not a retry of yours",
	"lease_id":                          "echo the request",
	"lease_epoch":                       "echo the request as the same integer; it fences, so never count it up",
	"target":                            "echo the four fields of the request's target",
	"profile":                           "echo the profile as it came, defaults not filled in, lists in their order",
	"platform":                          "echo the request, and run on that platform",
	"root_image":                        "echo the reference with its digest; do not resolve it to a tag",
	"mounts":                            "echo all mounts in the request's order",
	"output_path":                       "always /mnt/session/outputs, without a trailing slash",
	"expires_at":                        "echo the same bytes; do not replace it by a deadline of your platform and do not print it again",
	"materialization.profile_digest":    "SHA-256 of the canonical JSON of {base_image, packages}, with the prefix sha256:",
	"materialization.image_reference":   "equal to root_image",
	"materialization.image_digest":      "the digest suffix of root_image; do not ask your image store",
	"materialization.provider_revision": "the provider_revision of your envelope",
	"materialization.materialization_revision": "the materialization_revision of your envelope",
	"source_instance_id":                       "the id of the instance that was captured, also in a clone",
	"profile_id":                               "echo the instance's profile",
	"profile_version":                          "echo the instance's profile",
	"profile_digest":                           "the same digest as in the instance's materialization",
	"snapshot_id":                              "a clone is another snapshot and has another id",
	"created_at":                               "the time of this capture or clone, before its expiry",
}

func hint(id, check string) string {
	if strings.HasPrefix(id, "identity.") {
		return hints[check]
	}
	return ""
}
