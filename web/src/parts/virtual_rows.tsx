/** Rows of known heights, of which only those in view exist. */

import { elementScroll, observeElementOffset, observeElementRect, observeWindowOffset, observeWindowRect, Virtualizer, windowScroll } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useReducer, useRef } from "preact/hooks";

interface Props {
  count: number;
  /** In pixels, of each row. */
  heightOf(index: number): number;
  /** Another one with other heights. */
  layout: string;
  keyOf(index: number): string;
  render(index: number): ComponentChildren;
  /** The height of a box that scrolls by itself, CSS; without it the page scrolls. */
  height?: string;
  /** A row to scroll to. */
  scrollTo?: number | null;
}

export function VirtualRows({ count, heightOf, layout, keyOf, render, height, scrollTo }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const common = {
    count,
    estimateSize: heightOf,
    getItemKey: keyOf,
    overscan: 6,
    onChange: () => redraw(0),
    useAnimationFrameWithResizeObserver: false,
  };
  const options = height
    ? {
        ...common,
        getScrollElement: () => box.current,
        scrollToFn: elementScroll,
        observeElementRect,
        observeElementOffset,
      }
    : {
        ...common,
        getScrollElement: () => window,
        scrollToFn: windowScroll,
        observeElementRect: observeWindowRect,
        observeElementOffset: observeWindowOffset,
        initialOffset: () => window.scrollY,
        scrollMargin: box.current ? box.current.getBoundingClientRect().top + window.scrollY : 0,
      };
  // The types of both ways differ in the element that scrolls.
  const rows = useMemo(() => new Virtualizer<any, Element>(options as any), []);
  rows.setOptions(options as any);
  useLayoutEffect(() => rows._didMount(), []);
  useLayoutEffect(() => rows._willUpdate());
  useLayoutEffect(() => rows.measure(), [layout]);
  useLayoutEffect(() => {
    if (scrollTo != null) rows.scrollToIndex(scrollTo, { align: "center" });
  }, [scrollTo]);
  const margin = height ? 0 : rows.options.scrollMargin;
  return (
    <div ref={box} role="rowgroup" class="rows" style={height ? { maxHeight: height, overflowY: "auto" } : {}} tabIndex={height ? 0 : undefined}>
      <div role="presentation" class="all-rows" style={{ height: `${rows.getTotalSize()}px` }}>
        {rows.getVirtualItems().map((item) => (
          <div key={item.key} role="presentation" class="virtual-row" style={{ height: `${item.size}px`, transform: `translateY(${item.start - margin}px)` }}>
            {render(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
