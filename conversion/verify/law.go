package verify

import (
	"refract.dev/conversion/structural/generate"
)

// Law is the name of a law of conversions.
type Law string

// The laws.
const (
	RoundTripSpoke Law = "RoundTripSpoke"
	RoundTripHub   Law = "RoundTripHub"
	Edit           Law = "Edit"
	Partial        Law = "Partial"
	Valid          Law = "Valid"
	Defaulting     Law = "Defaulting"
	Triangle       Law = "Triangle"
	Deterministic  Law = "Deterministic"
	Bounded        Law = "Bounded"
	Contract       Law = "Contract"
)

// Agreement is the law that [Compare] checks: two conversions give the same results.
const Agreement Law = "Agreement"

// LawInfo describes a law.
type LawInfo struct {
	Name Law `json:"name"`
	// Summary is one sentence.
	Summary string `json:"summary"`
}

// Laws returns the ten laws in the order of reports. The caller owns the slice.
func Laws() []LawInfo {
	out := make([]LawInfo, len(laws))
	for i := range laws {
		out[i] = laws[i].LawInfo
	}
	return out
}

// law is a law with its check.
type law struct {
	LawInfo

	// judge returns a violation or nil, and whether the law applies to the trial. For example, a law about two objects
	// does not apply if one of them cannot be converted.
	judge func(*judge, *trial, []generate.Edit) (*Violation, bool)
	// plan returns the edits for judge; nil for laws without edits.
	plan func(*judge, *trial, generate.Source) []generate.Edit
	// tries is the maximum number of plans. The runner makes another plan if judge does not apply to the edits.
	tries int
	// about reports whether the law applies to objects of the hub (true) or of a spoke (false); nil if it applies to
	// both.
	about func(hub bool) bool
}

var laws = []law{
	{
		LawInfo: LawInfo{RoundTripSpoke, "An object of a spoke converts to another version and back without a change."},
		judge:   (*judge).roundTrip,
		about:   func(hub bool) bool { return !hub },
	},
	{
		LawInfo: LawInfo{RoundTripHub, "An object of the hub converts to another version and back without a change."},
		judge:   (*judge).roundTrip,
		about:   func(hub bool) bool { return hub },
	},
	{
		LawInfo: LawInfo{Edit, "An edit in another version is kept, and nothing else changes."},
		judge:   (*judge).edit, plan: (*judge).planEdit, tries: 4,
	},
	{
		LawInfo: LawInfo{Partial, "A part of an object converts to a part of the result for the whole object, and keeps nothing in annotations."},
		judge:   (*judge).partial, plan: (*judge).planPartial, tries: 2,
	},
	{
		LawInfo: LawInfo{Valid, "A valid object converts to a valid object, and nothing is pruned."},
		judge:   (*judge).valid,
	},
	{
		LawInfo: LawInfo{Defaulting, "Defaults of one version replace no written value and no default of another version."},
		judge:   (*judge).defaulting,
	},
	{
		LawInfo: LawInfo{Triangle, "A conversion through a third version has the result of the direct conversion."},
		judge:   (*judge).triangle,
	},
	{
		LawInfo: LawInfo{Deterministic, "The same object converts to the same bytes, alone and among others, and is not modified."},
		judge:   (*judge).deterministic,
	},
	{
		LawInfo: LawInfo{Bounded, "The result has at most 16 times the bytes of the input plus 64 KiB, and does not grow with each round trip."},
		judge:   (*judge).bounded,
	},
	{
		LawInfo: LawInfo{Contract, "The answer to a review is as API servers demand: the same objects in the same order, with the same metadata except " +
			"annotations."},
		judge: (*judge).contract,
	},
}
