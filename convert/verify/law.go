package verify

import (
	"refract.dev/structural/generate"
)

// Law is the name of something that conversions keep to.
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

// Agreement is what [Compare] checks. It is no law of one conversion, but between two.
const Agreement Law = "Agreement"

// LawInfo says what a law is about.
type LawInfo struct {
	Name Law `json:"name"`
	// Summary is one sentence.
	Summary string `json:"summary"`
}

// Laws returns the ten laws, in the order of reports. The slice is the caller's.
func Laws() []LawInfo {
	out := make([]LawInfo, len(laws))
	for i := range laws {
		out[i] = laws[i].LawInfo
	}
	return out
}

// law is a law, and how it is checked with a trial.
type law struct {
	LawInfo

	// judge returns what breaks the law, and whether the law has anything to say about
	// the trial: what is about two objects that cannot both be had says nothing.
	judge func(*judge, *trial, []generate.Edit) (*Violation, bool)
	// plan returns the edits for judge; nil if there are never any.
	plan func(*judge, *trial, generate.Source) []generate.Edit
	// tries is how many plans are made at most until there is one that judge has anything
	// to say about.
	tries int
	// about is whether the law is about objects of the hub, of spokes, or both; nil: both.
	about func(hub bool) bool
}

var laws = []law{
	{
		LawInfo: LawInfo{RoundTripSpoke, "What goes from a spoke to another version and back is what it was."},
		judge:   (*judge).roundTrip,
		about:   func(hub bool) bool { return !hub },
	},
	{
		LawInfo: LawInfo{RoundTripHub, "What goes from the hub to another version and back is what it was."},
		judge:   (*judge).roundTrip,
		about:   func(hub bool) bool { return hub },
	},
	{
		LawInfo: LawInfo{Edit, "What is edited in another version stays edited, and nothing else changes."},
		judge:   (*judge).edit, plan: (*judge).planEdit, tries: 4,
	},
	{
		LawInfo: LawInfo{Partial, "A part of an object converts to a part of what the whole object converts to, and keeps nothing in annotations."},
		judge:   (*judge).partial, plan: (*judge).planPartial, tries: 2,
	},
	{
		LawInfo: LawInfo{Valid, "What is valid converts to something valid, of which nothing is pruned."},
		judge:   (*judge).valid,
	},
	{
		LawInfo: LawInfo{Defaulting, "Defaults of one version take the place of nothing that was written, and of no default, in another."},
		judge:   (*judge).defaulting,
	},
	{
		LawInfo: LawInfo{Triangle, "The way over a third version leads to where the direct one does."},
		judge:   (*judge).triangle,
	},
	{
		LawInfo: LawInfo{Deterministic, "The same object converts to the same bytes, alone and among others, and is not modified."},
		judge:   (*judge).deterministic,
	},
	{
		LawInfo: LawInfo{Bounded, "What comes out has at most 16 times the bytes of what goes in, and 64 KiB, and does not grow with each trip."},
		judge:   (*judge).bounded,
	},
	{
		LawInfo: LawInfo{Contract, "A review is answered as API servers demand: the same objects in their order, with their metadata but for annotations."},
		judge:   (*judge).contract,
	},
}
