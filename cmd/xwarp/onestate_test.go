package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"xwarp/engine/daemon/control"
)

// onlyIn lists the status fields that xwarp status ("text KEY") or the status page ("page KEY") leaves out, with the
// reason or the place that shows them.
var onlyIn = map[string]string{
	"page command":                 "for programs",
	"page cq":                      "xwarp resource show",
	"page flushes":                 "xwarp status --json",
	"page ifindex":                 "xwarp link",
	"page interface":               "xwarp link",
	"page ipsec":                   "xwarp status lists SAs",
	"page listener":                "xwarp resource show",
	"page live":                    "tuning: xwarp status --json",
	"page mr":                      "xwarp resource show",
	"page mw":                      "xwarp resource show",
	"page partial_checksum_frames": "in the events",
	"page path":                    "xwarp status --json",
	"page pd":                      "xwarp resource show",
	"page qp":                      "the table of connections",
	"page rdma_rx_bytes":           "a plot",
	"page rdma_tx_bytes":           "a plot",
	"page reopened":                "in the events",
	"page retransmitted_bytes":     "a plot",
	"page rx_grown":                "tuning: xwarp status --json",
	"page rx_offered":              "tuning: xwarp status --json",
	"page schema":                  "for programs",
	"page segments":                "tuning: xwarp status --json",
	"page srq":                     "xwarp resource show",
	"page transmit":                "named by way",
	"text command":                 "for programs",
	"text device":                  "the heading names it",
	"text flushes":                 "xwarp status --json",
	"text ifindex":                 "xwarp link",
	"text interface":               "xwarp link",
	"text memory":                  "of exports of memory",
	"text mw":                      "xwarp resource show",
	"text path":                    "xwarp status --json",
	"text rejected":                "xwarp statistic show",
	"text rx_grown":                "tuning: --json has it",
	"text rx_offered":              "tuning: --json has it",
	"text schema":                  "for programs",
	"text segments":                "tuning: xwarp status --json",
	"text srq":                     "xwarp resource show",
}

// TestStatusIsShownEverywhere: xwarp status and the status page show every field of the JSON document, or onlyIn says
// why not. Fields get values that occur nowhere else.
func TestStatusIsShownEverywhere(t *testing.T) {
	b, err := os.ReadFile("../../engine/daemon/web/static/page.js")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	s := control.Status{Devices: make([]control.DeviceState, 1),
		Exports: make([]control.ExportState, 1)}
	var values []struct{ key, value string }
	n := 7000
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			if v.Type().Field(i).Anonymous {
				fill(v.Field(i))
				continue
			}
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			n++
			value := fmt.Sprint(n)
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				value = "value" + value
				f.SetString(value)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(n))
			case reflect.Uint64:
				f.SetUint(uint64(n))
			case reflect.Float64:
				f.SetFloat(float64(n))
				value = seconds(float64(n)).String()
			case reflect.Bool:
				f.SetBool(true)
				value = "another version"
			case reflect.Slice:
				switch f.Interface().(type) {
				case []string:
					value = "value" + value
					f.Set(reflect.ValueOf([]string{value}))
				case []netip.Addr:
					value = fmt.Sprintf("2001:db8::%d", n)
					f.Set(reflect.ValueOf([]netip.Addr{netip.MustParseAddr(value)}))
				default:
					continue
				}
			case reflect.Struct:
				if _, ok := f.Interface().(time.Time); !ok {
					continue
				}
				at := time.Unix(int64(n), 0)
				value = at.Format(time.RFC3339)
				f.Set(reflect.ValueOf(at))
			default:
				continue
			}
			values = append(values, struct{ key, value string }{key, value})
		}
	}
	fill(reflect.ValueOf(&s).Elem())
	fill(reflect.ValueOf(&s.Devices[0]).Elem())
	fill(reflect.ValueOf(&s.Exports[0]).Elem())
	fill(reflect.ValueOf(&s.Count).Elem())
	s.Devices[0].Link = control.LinkDown
	s.Exports[0].Serve = "directory"
	var out bytes.Buffer
	if err := writeStatus(&out, &s); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		inText := strings.Contains(out.String(), v.value) || v.key == "link" || v.key == "serve" ||
			regexp.MustCompile(`[0-9.]+ [KMG]iB`).MatchString(out.String()) && isBytes(v.key)
		if !inText && onlyIn["text "+v.key] == "" {
			t.Errorf("xwarp status does not show %s (%s)\n%s", v.key, v.value, &out)
		}
		if !regexp.MustCompile(`\.`+v.key+`\b`).MatchString(page) && onlyIn["page "+v.key] == "" {
			t.Errorf("the status page does not show %s", v.key)
		}
	}
}

// isBytes reports whether a field is printed as a size.
func isBytes(key string) bool {
	return strings.HasSuffix(key, "bytes") || key == "size" || key == "used"
}
