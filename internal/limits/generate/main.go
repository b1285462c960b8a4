// Command generate writes docs/reference/limits.md: what has a bound, how much it may be,
// and what happens beyond it. The numbers are those of the constants in the code, so that
// the page cannot say another.
//
// It runs in the root of this module.
package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const target = "docs/reference/limits.md"

// part is a table of the page.
type part struct {
	title, text string
	rows        []row
}

// row is a bound.
type row struct {
	what string
	// dir and name are where its constant is, and unit what it counts.
	dir, name string
	unit      unit
	beyond    string
}

type unit int

const (
	count unit = iota
	bytes
)

var parts = []part{
	{
		"Override policies",
		"What a policy may have is checked by the schema of its kind, by the webhook, and again when it is used: it may have been\n" +
			"stored, or written to a file, where nobody asked. What it does is counted, and not timed, so that it is the same everywhere.",
		[]row{
			{"rules of a policy", "override", "MaxRules", count, "refused; a stored policy fails every object that names it, on every cluster, and says so"},
			{"items of the overriders of a rule", "override", "MaxItems", count, "the same"},
			{"items of all rules of a policy", "override", "MaxPolicyItems", count, "the same"},
			{"values of a policy: entries of maps, elements of lists, names of clusters", "override", "MaxValues", count, "the same"},
			{"terms of a `clusterAffinity`", "match", "MaxTerms", count, "refused; the rule fails every cluster"},
			{"segments of a path", "override", "MaxDepth", count, "refused; the rule fails its clusters"},
			{"changes and warnings of an object for one cluster", "override", "MaxChanges", count, "the object fails for the cluster, and the rule is named"},
			{"changes and warnings of an object for all clusters", "override", "MaxTotalChanges", count, "it fails for the clusters that nothing is left for"},
			{"units of work of an object for one cluster (some nanoseconds each)", "override", "MaxWork", count, "it fails for the cluster"},
			{"units of work of an object for all clusters", "override", "MaxTotalWork", count, "it fails for the clusters that nothing is left for"},
			{"bytes of an object for all clusters, as JSON; a handful of variants are not weighed", "override", "MaxTotalBytes", bytes, "the same"},
		},
	},
	{
		"Propagation policies",
		"As with override policies, this is checked when a policy is written and when it is used.",
		[]row{
			{
				"clusters that a policy lists in `placement`",
				"placement", "MaxPlacements", count, "refused; the objects that name a stored one stay as they are",
			},
			{"tolerations of a policy", "placement", "MaxTolerations", count, "the same"},
			{"terms of a `clusterAffinity`", "match", "MaxTerms", count, "the same"},
		},
	},
	{
		"What the controllers keep of an object",
		"Beside the object and a row for each copy. What has no room is rendered again when it is needed; see\n" +
			"[design/0022](../design/0022-what-is-kept-in-memory.md).",
		[]row{
			{"bytes of a copy, as JSON", "internal/controller/propagation", "maxBody", bytes, "it fails for the cluster: API servers read no more"},
			{"bytes of a copy that is sent, as JSON in which each escape sequence counts as one byte", "internal/member", "MostSent", bytes,
				"it is not sent, and is `Failed` (`Rejected`): etcd takes no more in a request"},
			{"bytes of the copies of an object that are about to be written", "internal/controller/propagation", "maxPlanBodies", bytes,
				"rendered when each is written"},
			{"bytes of the copies of all objects that are about to be written", "internal/controller/propagation", "maxBodies", bytes,
				"rendered when each is written"},
			{
				"bytes from which on a member is sent one copy after the other",
				"internal/controller/propagation", "largeBody", bytes, "it waits for those before, and small ones do not",
			},
			{"copies of more than that which are sent to all members at a time", "internal/controller/propagation", "maxLarge", count, "the same"},
			{"variants whose changes a report shows", "internal/controller/propagation", "maxVariants", count, "only how many variants there are is shown"},
			{"changes of a variant in a report", "internal/controller/propagation", "maxChanges", count, "the rest is not shown; refract explain does"},
			{"bytes of all changes in a report, and of all warnings about variants", "internal/controller/propagation", "maxText", bytes, "the same"},
			{"bytes of a report, as JSON", "internal/controller/propagation", "mostStatus", bytes, "messages of clusters are cut, then left out"},
			{"warnings of an object, and of each variant, in a report", "internal/controller/propagation", "maxWarnings", count, "how many more there are"},
		},
	},
	{
		"The injection into pods",
		"A pod beyond a bound is let through as it is. Its record, an event and the policy's status say so, and it is looked at again.",
		[]row{
			{"bytes of a pod after the injection", "inject", "maxPod", bytes, "the policy that would exceed it is skipped"},
			{"bytes that a policy adds", "inject", "maxInjected", bytes, "the policy is refused; a stored one is not in effect"},
			{"labels, expressions and values of a selector", "inject", "mostRequirements", count, "the same"},
			{
				"items of a pod: a container is eight, a variable, source, mount, device or volume one",
				"inject", "maxElements", count, "all policies are skipped",
			},
			{"bytes of all annotations of a pod", "inject", "maxAnnotations", bytes, "the policy that would exceed it is skipped"},
			{"units of work of a pod (some 10 ns each)", "inject", "maxWork", count, "all policies are skipped"},
		},
	},
	{
		"Reviews",
		"What the API server asks a webhook. Beyond a bound the answer is an error with its name, before the rest is read.",
		[]row{
			{"bytes of a review of an injected pod", "internal/controller/injection", "mostBytes", bytes, "413: the pod is let through, and repaired later"},
			{"bytes of a review of a policy, of either kind", "internal/webhook/bounded", "mostBytes", bytes, "413: the write is refused"},
			{"values of a policy and what it was before", "internal/webhook/policies", "mostRead", count, "413: the write is refused"},
			{"values of an injection policy and what it was before", "internal/controller/injection", "mostRead", count, "413: the write is refused"},
			{"values of a ConversionPolicy and what it was before", "internal/controller/conversion", "mostRead", count, "413: the write is refused"},
			{"bytes of who asks for a write", "webhook/admission", "mostPart", bytes, "400"},
			{"values that the advice for a policy may hold", "internal/webhook/policies", "mostValues", count, "no advice is given, and a warning says so"},
			{"references that a policy brings in", "internal/webhook/policies", "mostReferences", count, "the policy is refused"},
			{"bytes of a conversion review", "webhook/conversion", "DefaultMaxBytes", bytes, "413"},
			{"objects of a conversion review", "convert", "defaultObjects", count, "the review fails"},
			{"bytes of the answer to one", "convert", "defaultOutputBytes", bytes, "the review fails"},
			{"bytes of any other request", "webhook", "defaultMaxBytes", bytes, "413"},
			{"bytes of the head of a request", "webhook", "maxHeader", bytes, "431"},
		},
	},
	{
		"ConversionPolicies",
		"What a policy may have is checked when it is written and when it is compiled, be it stored or in a file. Beyond what can be told from it the\n" +
			"policy is not compiled, and the one before goes on to serve; beyond the rest the object that it is for does not convert.",
		[]row{
			{"versions beside the hub", "convert/policy", "mostSpokes", count, "the policy is not compiled"},
			{"fields of a version", "convert/policy", "mostFields", count, "the policy is not compiled"},
			{"pairs of a `map`", "convert/policy", "mostPairs", count, "the policy is not compiled"},
			{"expressions of a policy", "convert/policy", "mostExpressions", count, "the policy is not compiled"},
			{"bytes of all expressions of a policy", "convert/policy", "mostExpressionBytes", bytes, "the policy is not compiled"},
			{
				"bytes of the definition that a status has of what is served",
				"internal/controller/conversion", "mostDefinition", bytes, "the policy cannot serve, and says so",
			},
			{"levels of a type of an expression", "convert/expression", "maxNesting", count, "the policy is not compiled"},
			{"values that the result of one may have", "convert/expression", "maxValues", count, "the object does not convert"},
			{"bytes of text that one may make", "convert/expression", "maxText", bytes, "the object does not convert"},
			{"levels of its result", "convert/expression", "maxLevels", count, "the object does not convert"},
			{"bytes of annotations that keep what a version lacks", "convert", "maxAnnotations", bytes, "the object does not convert"},
		},
	},
	{
		"Answers of members",
		"What a member answers is somebody else's. Beyond a bound the rest is not read, the request fails, and the condition `Readable` of the\n" +
			"FederatedCluster is False with the reason `AnswerTooLarge`. Other members do not notice.\n\n" +
			"`status.pendingDeletions` of a FederatedCluster lists at most 500 copies ([0051](../design/0051-nothing-holds-a-namespace.md)).",
		[]row{
			{
				"bytes of an answer, or of several that belong together, after decompression",
				"internal/member", "mostAnswer", bytes, "asked again, for fewer objects at a time",
			},
			{"bytes of the head of an answer", "internal/member", "mostHeader", bytes, "the request fails"},
			{"bytes of an event of a watch", "internal/member", "mostEvent", bytes, "the watch begins anew"},
			{"values in the JSON of an answer", "internal/member", "mostValues", count, "asked again, for fewer objects at a time"},
			{"values in the JSON of an event of a watch", "internal/member", "mostEventValues", count, "the watch begins anew"},
			{"objects of a page", "internal/member", "mostObjects", count, "the list fails"},
			{"levels of the JSON", "internal/member", "mostDepth", count, "the request fails"},
			{"pages of a list", "internal/member", "mostPages", count, "the list fails"},
			{"bytes of the token that the next page is asked for with", "internal/member", "mostToken", bytes, "the list fails"},
			{"types that a member serves", "internal/member", "mostTypes", count, "discovery fails"},
			{
				"versions of all API groups, of a member that does not tell of all types in one answer",
				"internal/member", "mostVersions", count, "discovery fails",
			},
			{"namespaces of a member", "internal/member", "mostNamespaces", count, "those beyond are not looked at"},
			{"bytes of each annotation that marks a copy", "internal/member", "mostMark", bytes, "the copy is `Failed` (`Unreadable`), and left alone"},
			{
				"bytes of the record of fields that Refract applied to a copy",
				"internal/member", "mostFields", bytes, "it is known that it changed, and not which field",
			},
			{"bytes of such a record in which the order does not count", "internal/member", "mostSet", bytes, "another order is a change"},
		},
	},
	{
		"What a member may take",
		"What is kept of a member, and what of its answers is in hand at a time, counts for that member. Beyond a bound something of this member\n" +
			"waits, is not kept, or fails as above.",
		[]row{
			{
				"copies that are known",
				"internal/member", "mostCopies", count,
				"nothing is known of the type with which it is too much, for a minute; its rows are `Failed` (`Unreadable`)",
			},
			{
				"bytes to be known of copies, with the records of fields; a copy as Refract writes it counts for some 600",
				"internal/member", "mostKept", bytes, "the same",
			},
			{
				"bytes of these records of fields",
				"internal/member", "mostOfFields", bytes, "of a further record it is known that it changed, and not which field",
			},
			{"such records, of all members, that are known by how an API server wrote them", "internal/member", "knownSets", count, "the next is read anew"},
			{"bytes of these", "internal/member", "mostKnown", bytes, "the same"},
			{
				"types that are watched, as there are copies, although the hub does not have them",
				"internal/member", "mostStrays", count, "the others are not watched",
			},
			{"pages of lists that are asked for at a time", "internal/member", "mostPagesAtOnce", count, "the others wait"},
			{"bytes of an answer or event that is not large", "internal/member", "smallAnswer", bytes, "it is large"},
			{"values of an answer or event that is not large", "internal/member", "smallValues", count, "it is large"},
			{"large answers and events that are in hand at a time", "internal/member", "mostLarge", count, "the others wait"},
			{"bytes of an answer that has come and is not read yet", "internal/member", "mostUnread", bytes, "the member has to wait"},
			{"bytes that watches hold after large events", "internal/member", "mostBuffers", bytes, "the watch begins anew"},
			{"namespaces that wait to be labelled or removed", "internal/controller/propagation", "mostTended", count, "found again four minutes later"},
		},
	},
	{
		"Files",
		"",
		[]row{
			{"bytes of an object in a file", "internal/offline/manifest", "maxSize", bytes, "the file is refused: no API server stores more"},
			{"levels of an object in a file", "internal/offline/manifest", "maxDepth", count, "the file is refused"},
		},
	},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:forbidigo // This is a main, though not below cmd.
	}
}

func run() error {
	page, err := write()
	if err != nil {
		return err
	}
	return os.WriteFile(target, []byte(page), 0o644)
}

func write() (string, error) {
	var b strings.Builder
	b.WriteString("# Limits\n\nEverything that somebody else writes has a bound. This page is made from the constants in the code.\n")
	known := map[string]map[string]int64{} // By folder.
	for _, p := range parts {
		fmt.Fprintf(&b, "\n## %s\n\n", p.title)
		if p.text != "" {
			fmt.Fprintf(&b, "%s\n\n", p.text)
		}
		b.WriteString("| What | At most | Beyond |\n|---|---|---|\n")
		for _, r := range p.rows {
			if known[r.dir] == nil {
				var err error
				if known[r.dir], err = constants(r.dir); err != nil {
					return "", err
				}
			}
			n, ok := known[r.dir][r.name]
			if !ok {
				return "", fmt.Errorf("package %s has no constant %s that is an integer", r.dir, r.name)
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.what, r.unit.format(n), r.beyond)
		}
	}
	return b.String(), nil
}

// constants returns those of a package that are integers and need no other package.
func constants(dir string) (map[string]int64, error) {
	files := token.NewFileSet()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var parsed []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	check := types.Config{
		IgnoreFuncBodies: true,
		Error:            func(error) {}, // Of what other packages would have to be known for.
		Importer:         nothing{},
	}
	pkg, _ := check.Check(dir, files, parsed, nil)
	if pkg == nil {
		return nil, fmt.Errorf("package %s cannot be read", dir)
	}
	all := map[string]int64{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || c.Val().Kind() != constant.Int {
			continue
		}
		if n, exact := constant.Int64Val(c.Val()); exact {
			all[name] = n
		}
	}
	return all, nil
}

// nothing imports nothing.
type nothing struct{}

// Import implements [types.Importer].
func (nothing) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
}

// format writes a number with commas, or bytes in the largest unit that has no fraction.
func (u unit) format(n int64) string {
	if u == bytes {
		switch {
		case n%(1<<20) == 0:
			return fmt.Sprintf("%d MiB", n>>20)
		case n%(1<<10) == 0:
			return fmt.Sprintf("%d KiB", n>>10)
		}
	}
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
