// Command generate writes docs/reference/limits.md: all bounds, their values, and the consequences beyond them. The
// values come from the constants in the code, so that the page cannot differ from the code.
//
// It must run in the root of this module.
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
	// dir and name are the package and the name of the constant; unit is its unit.
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
			{"rules of a policy", "fleet/policy/override", "MaxRules", count, "refused; a stored policy fails every object that names it, on every cluster"},
			{"items of the overriders of a rule", "fleet/policy/override", "MaxItems", count, "the same"},
			{"items of all rules of a policy", "fleet/policy/override", "MaxPolicyItems", count, "the same"},
			{"values of a policy: entries of maps, elements of lists, names of clusters", "fleet/policy/override", "MaxValues", count, "the same"},
			{"terms of a `clusterAffinity`", "fleet/policy/match", "MaxTerms", count, "refused; the rule fails every cluster"},
			{"segments of a path", "fleet/policy/override", "MaxDepth", count, "refused; the rule fails its clusters"},
			{"changes and warnings of an object for one cluster", "fleet/policy/override",
				"MaxChanges", count, "the object fails for the cluster; the rule is named"},
			{"changes and warnings of an object for all clusters", "fleet/policy/override", "MaxTotalChanges", count, "it fails for the remaining clusters"},
			{"units of work of an object for one cluster (some nanoseconds each)", "fleet/policy/override", "MaxWork", count, "it fails for the cluster"},
			{"units of work of an object for all clusters", "fleet/policy/override", "MaxTotalWork", count, "it fails for the remaining clusters"},
			{"bytes of an object for all clusters, as JSON; a handful of variants are not weighed", "fleet/policy/override",
				"MaxTotalBytes", bytes, "the same"},
		},
	},
	{
		"Propagation policies",
		"As with override policies, this is checked when a policy is written and when it is used.",
		[]row{
			{
				"clusters that a policy lists in `placement`",
				"fleet/policy/placement", "MaxPlacements", count, "refused; the objects that name a stored one stay as they are",
			},
			{"tolerations of a policy", "fleet/policy/placement", "MaxTolerations", count, "the same"},
			{"terms of a `clusterAffinity`", "fleet/policy/match", "MaxTerms", count, "the same"},
		},
	},
	{
		"What the controllers keep of an object",
		"Beside the object and a row for each copy. What has no room is rendered again when it is needed; see\n" +
			"[design/load-and-memory.md](../design/load-and-memory.md#growth-of-memory).",
		[]row{
			{"bytes of a copy, as JSON", "fleet/propagation", "maxBody", bytes, "it fails for the cluster: API servers read no more"},
			{"bytes of a copy that is sent, as JSON in which each escape sequence counts as one byte", "fleet/member", "MostSent", bytes,
				"it is not sent, and is `Failed` (`Rejected`): etcd takes no more in a request"},
			{"bytes of the copies of an object that are about to be written", "fleet/propagation", "maxPlanBodies", bytes,
				"rendered when each is written"},
			{"bytes of the copies of all objects that are about to be written", "fleet/propagation", "maxBodies", bytes,
				"rendered when each is written"},
			{
				"bytes from which on a member is sent one copy after the other",
				"fleet/propagation", "largeBody", bytes, "it waits for those before, and small ones do not",
			},
			{"copies of more than that which are sent to all members at a time", "fleet/propagation", "maxLarge", count, "the same"},
			{"variants whose changes a report shows", "fleet/propagation", "maxVariants", count, "only how many variants there are is shown"},
			{"changes of a variant in a report", "fleet/propagation", "maxChanges", count, "the rest is not shown; refract explain does"},
			{"bytes of all changes in a report, and of all warnings about variants", "fleet/propagation", "maxText", bytes, "the same"},
			{"bytes of a report, as JSON", "fleet/propagation", "mostStatus", bytes, "messages of clusters are cut, then left out"},
			{"warnings of an object, and of each variant, in a report", "fleet/propagation", "maxWarnings", count, "how many more there are"},
		},
	},
	{
		"The injection into pods",
		"A pod beyond a bound is let through as it is. Its record, an event and the policy's status say so, and it is looked at again.",
		[]row{
			{"bytes of a pod after the injection", "injection/inject", "maxPod", bytes, "the policy that would exceed it is skipped"},
			{"bytes that a policy adds", "injection/inject", "maxInjected", bytes, "the policy is refused; a stored one is not in effect"},
			{"labels, expressions and values of a selector", "injection/inject", "mostRequirements", count, "the same"},
			{
				"items of a pod: a container is eight, a variable, source, mount, device or volume one",
				"injection/inject", "maxElements", count, "all policies are skipped",
			},
			{"bytes of all annotations of a pod", "injection/inject", "maxAnnotations", bytes, "the policy that would exceed it is skipped"},
			{"units of work of a pod (some 10 ns each)", "injection/inject", "maxWork", count, "all policies are skipped"},
		},
	},
	{
		"Reviews",
		"What the API server asks a webhook. Beyond a bound the answer is an error with its name, before the rest is read.",
		[]row{
			{"bytes of a review of an injected pod", "injection/injector", "mostBytes", bytes, "413: the pod is let through, and repaired later"},
			{"bytes of a review of a policy, of either kind", "internal/webhook/bounded", "mostBytes", bytes, "413: the write is refused"},
			{"values of a policy and what it was before", "fleet/policies", "mostRead", count, "413: the write is refused"},
			{"values of an injection policy and what it was before", "injection/injector", "mostRead", count, "413: the write is refused"},
			{"values of a ConversionPolicy and what it was before", "conversion/converter", "mostRead", count, "413: the write is refused"},
			{"bytes of who asks for a write", "kit/webhook/admission", "mostPart", bytes, "400"},
			{"values that the advice for a policy may hold", "fleet/policies", "mostValues", count, "no advice is given, and a warning says so"},
			{"references that a policy brings in", "fleet/policies", "mostReferences", count, "the policy is refused"},
			{"bytes of a conversion review", "kit/webhook/conversion", "DefaultMaxBytes", bytes, "413"},
			{"objects of a conversion review", "conversion/convert", "defaultObjects", count, "the review fails"},
			{"bytes of the answer to one", "conversion/convert", "defaultOutputBytes", bytes, "the review fails"},
			{"bytes of any other request", "kit/webhook", "defaultMaxBytes", bytes, "413"},
			{"bytes of the head of a request", "kit/webhook", "maxHeader", bytes, "431"},
		},
	},
	{
		"ConversionPolicies",
		"What a policy may have is checked when it is written and when it is compiled, be it stored or in a file. Beyond what can be told from it the\n" +
			"policy is not compiled, and the one before goes on to serve; beyond the rest the object that it is for does not convert.",
		[]row{
			{"versions beside the hub", "conversion/policy", "mostSpokes", count, "the policy is not compiled"},
			{"fields of a version", "conversion/policy", "mostFields", count, "the policy is not compiled"},
			{"pairs of a `map`", "conversion/policy", "mostPairs", count, "the policy is not compiled"},
			{"expressions of a policy", "conversion/policy", "mostExpressions", count, "the policy is not compiled"},
			{"bytes of all expressions of a policy", "conversion/policy", "mostExpressionBytes", bytes, "the policy is not compiled"},
			{
				"bytes of the definition that a status has of what is served",
				"conversion/converter", "mostDefinition", bytes, "the policy cannot serve, and says so",
			},
			{"levels of a type of an expression", "conversion/expression", "maxNesting", count, "the policy is not compiled"},
			{"values that the result of one may have", "conversion/expression", "maxValues", count, "the object does not convert"},
			{"bytes of text that one may make", "conversion/expression", "maxText", bytes, "the object does not convert"},
			{"levels of its result", "conversion/expression", "maxLevels", count, "the object does not convert"},
			{"bytes of annotations that keep what a version lacks", "conversion/convert", "maxAnnotations", bytes, "the object does not convert"},
		},
	},
	{
		"Answers of members",
		"What a member answers is somebody else's. Beyond a bound the rest is not read, the request fails, and the condition `Readable` of the\n" +
			"FederatedCluster is False with the reason `AnswerTooLarge`. Other members do not notice.\n\n" +
			"`status.pendingDeletions` of a FederatedCluster lists at most 500 copies ([deletions](../design/deletions.md#propagations-without-finalizer)).",
		[]row{
			{
				"bytes of an answer, or of several that belong together, after decompression",
				"fleet/member", "mostAnswer", bytes, "asked again, for fewer objects at a time",
			},
			{"bytes of the head of an answer", "fleet/member", "mostHeader", bytes, "the request fails"},
			{"bytes of an event of a watch", "fleet/member", "mostEvent", bytes, "the watch begins anew"},
			{"values in the JSON of an answer", "fleet/member", "mostValues", count, "asked again, for fewer objects at a time"},
			{"values in the JSON of an event of a watch", "fleet/member", "mostEventValues", count, "the watch begins anew"},
			{"objects of a page", "fleet/member", "mostObjects", count, "the list fails"},
			{"levels of the JSON", "fleet/member", "mostDepth", count, "the request fails"},
			{"pages of a list", "fleet/member", "mostPages", count, "the list fails"},
			{"bytes of the token that the next page is asked for with", "fleet/member", "mostToken", bytes, "the list fails"},
			{"types that a member serves", "fleet/member", "mostTypes", count, "discovery fails"},
			{
				"versions of all API groups, of a member that does not tell of all types in one answer",
				"fleet/member", "mostVersions", count, "discovery fails",
			},
			{"namespaces of a member", "fleet/member", "mostNamespaces", count, "those beyond are not looked at"},
			{"bytes of each annotation that marks a copy", "fleet/member", "mostMark", bytes, "the copy is `Failed` (`Unreadable`), and left alone"},
			{
				"bytes of the record of fields that Refract applied to a copy",
				"fleet/member", "mostFields", bytes, "it is known that it changed, and not which field",
			},
			{"bytes of such a record in which the order does not count", "fleet/member", "mostSet", bytes, "another order is a change"},
		},
	},
	{
		"What a member may take",
		"What is kept of a member, and what of its answers is in hand at a time, counts for that member. Beyond a bound something of this member\n" +
			"waits, is not kept, or fails as above.",
		[]row{
			{
				"copies that are known",
				"fleet/member", "mostCopies", count,
				"nothing is known of the type with which it is too much, for a minute; its rows are `Failed` (`Unreadable`)",
			},
			{
				"bytes of known copies, with the records of fields; a copy as Refract writes it counts for some 600",
				"fleet/member", "mostKept", bytes, "the same",
			},
			{
				"bytes of these records of fields",
				"fleet/member", "mostOfFields", bytes, "of a further record it is known that it changed, and not which field",
			},
			{"such records, of all members, that are known by how an API server wrote them", "fleet/member", "knownSets", count, "the next is read anew"},
			{"bytes of these", "fleet/member", "mostKnown", bytes, "the same"},
			{
				"types that are watched, as there are copies, although the hub does not have them",
				"fleet/member", "mostStrays", count, "the others are not watched",
			},
			{"pages of lists that are asked for at a time", "fleet/member", "mostPagesAtOnce", count, "the others wait"},
			{"bytes of an answer or event that is not large", "fleet/member", "smallAnswer", bytes, "it is large"},
			{"values of an answer or event that is not large", "fleet/member", "smallValues", count, "it is large"},
			{"large answers and events that are in hand at a time", "fleet/member", "mostLarge", count, "the others wait"},
			{"bytes of an answer that has come and is not read yet", "fleet/member", "mostUnread", bytes, "the member has to wait"},
			{"bytes that watches hold after large events", "fleet/member", "mostBuffers", bytes, "the watch begins anew"},
			{"namespaces that wait to be labelled or removed", "fleet/propagation", "mostTended", count, "found again four minutes later"},
		},
	},
	{
		"Files",
		"",
		[]row{
			{"bytes of an object in a file", "fleet/offline/manifest", "maxSize", bytes, "the file is refused: no API server stores more"},
			{"levels of an object in a file", "fleet/offline/manifest", "maxDepth", count, "the file is refused"},
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
	known := map[string]map[string]int64{} // Constants by folder.
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

// constants returns the integer constants of a package that do not depend on other packages.
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
		Error:            func(error) {}, // Ignores the errors from missing imports.
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

// nothing is an importer without packages.
type nothing struct{}

// Import implements [types.Importer].
func (nothing) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
}

// format returns a number with commas. Bytes are in the largest unit without a fraction.
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
