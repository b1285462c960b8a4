// Package convert converts custom resources between their versions.
package convert
